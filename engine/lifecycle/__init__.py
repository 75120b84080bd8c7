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
settings          what the realm demands and says, changed by a person
workflows         a name, an owner, a line of revisions
revisions         stage, approve, reject, publish, roll back
publication       one revision in force, its triggers spread out
activation        disable and enable
deletion          delete
alerts            what whoever watches over a realm is told
guard             nobody gives through a workflow what they could not give by hand

    how runs begin and are steered by people
event_members     what belongs to an event that is reported
events            events of an outside directory
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
diagnostics       how a workflow fares
worker            claims, advances, dispatches, calls, delivers, sweeps
retention         history that may go
"""
