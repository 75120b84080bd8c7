"""Lifecycle workflows: the dialect of lines of steps for one user at a time.

    what is declared
members           strict, closed, immutable
definition        triggers, steps, retry; parsed and made canonical
faults            what is wrong with a definition, told by member
trigger_members   the members of triggers and selectors
references        what a definition refers to, looked up in its realm
contract          the JSON Schema of definitions
contract_prose    what that schema says in words
steps             one file a step type
selectors         one file a selector

    who answers for it
policy            what the realm demands
workflows         a name, an owner, a line of revisions
revisions         stage and publish
guard             nobody gives through a workflow what they could not give by hand

    how runs begin and are steered by people
triggers          events, slots and people start runs, each once
slots             the arithmetic of schedules
schedules         fills the slots that have come
runs              manual start and cancellation
approvals         decisions of people

    how runs advance
states            the state tables
facts             what a decision may know of a run
plans             revisions made ready to run
load              loads a round
decide            the decision, a pure function
compensation      taking back what a failed run did
moves             what a decision makes of a run, and its rows
rounds            lock, load, decide, write, commit
calls             endpoint calls and their answers
callers           the threads that make them
guilty            a run whose own transaction fails
reports           what a pass did, for those who watch
worker            claims, advances, dispatches, calls, delivers, sweeps
retention         history that may go
"""
