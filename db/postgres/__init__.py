"""The parts of the embedded PostgreSQL, put together by db/embedded.py.

account     which operating system user runs the server, and running a program as that user binaries    where
PostgreSQL's programs are, and a copy of them where that user cannot reach the original folder      what the data
folder remembers (root, port, passwords), the lock over it, and where the server's own files go cluster     initdb,
the settings file and who may log in postmaster  is it alive, is it ours; start, stop, the tail of its log"""
