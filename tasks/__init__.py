"""One engine call each, and what operators see of it. With flows/, the only room that knows Prefect.

passes      what a hosted loop is made of: a protocol, and the record of one pass
advance     passes of the worker: claim, advance, dispatch, deliver
fire        passes of the scheduler: slots that are due
clean       one pass of retention
attendance  the shift's row: begun, passed, relieved, ended; the leases of a dead one handed back
database    the process's database, opened once
display     task runs, events and the table that operators see. Ids and counts only
"""
