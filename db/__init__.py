"""The database: how it is reached, what is in it, and the statements over it. Knows nobody else's rooms.

settings     where the database is and how patient its connections are (TENURE_...)
session      Database: transactions, sessions, listening; the way in for everyone else
connect      what every connection says when it logs in; the engines
listen       waiting for a NOTIFY
embedded     a PostgreSQL of our own for people who have none
postgres     its parts
migrate      bringing a database to the head
migrations   alembic's revisions
roles        tenure_app, the role of the application
tables       the tables, one aggregate a file
statements   one function, one statement
json         how values become JSON
rows         the rows that statements return
errors       DatabaseUnavailable
"""
