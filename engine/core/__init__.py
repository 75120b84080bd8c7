"""The core: knows no users, no HTTP, no Prefect.

ids          ids with a prefix
durations    durations as people write them
canonical    JSON read strictly, written in one form, hashed
errors       the ways to fail, and the closed list of categories
faults       a database that is away, told from a statement that is wrong
key_file     a file with a key in it
settings     what an operator may set
machine      state machines as tables
outcomes     what a decision comes to
retry        how long to wait, as a pure function
trail        audit rows and outbox events, and on whose account
ledger       the rows of a transaction, each table written once
leases       who may advance a run, until when, under which fence
shifts       who hosts the engine's loops
idempotency  a request that carries a key is done once
generated    files that are generated and kept
failpoints   places at which a test can kill the worker
"""
