"""The routes, one resource a file. Each declares what it wants of its caller (api/auth.py), and is read like this:

    @router.post("/things", status_code=201)
    def create_thing(
        caller: Annotated[Caller, permitted("realm.things.write")], connection: Transaction, body: NewThing
    ) -> Thing:
        thing_id = things.create(connection, caller.cause, **body.model_dump())
        return _shown(connection, caller, thing_id)

A function's name is the operation's id. What a list or an answer shows is a model at the top of the file.

workflows               workflows, validation of definitions, manual start
workflow_life           rollback, disable, enable, delete
revisions               revisions of a workflow, approval, publication
diagnostics             how a workflow fares
workflow_runs           runs with their attempts and approvals, cancellation
workflow_approvals      the approvals of a realm
my_approvals            self-service: what a user is asked to decide
users                   users, suspend, reactivate
organizations           organizations and their members
groups                  groups, their members, the roles they grant
roles                   roles
role_assignments        who holds which role
service_principals      machines that call, and the roles they hold
webhook_subscriptions   destinations and their secrets
settings                the realm's policy and the wording of its notices
permissions             the catalogue
audit_events            the audit trail
events                  what another directory reports
outbox_events           what has happened, dispatched or not, and dispatch again
health                  whether the process lives and the database answers
keys                    the public key of the local issuer
metrics                 figures for Prometheus
"""
