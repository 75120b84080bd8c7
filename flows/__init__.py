"""When the engine is called: Prefect flows, and what hosts them. No logic of the engine, no SQL.

advance_runs    deployment advance-runs/shift, every 5 minutes: the worker's passes
fire_schedules  deployment fire-schedules/shift, every 15 minutes: a pass a minute
clean_history   deployment clean-history/daily
shift           the loop of a relieved shift, in a thread of its own. Knows no Prefect
tally           what a shift has done so far, told from the loop to the main thread
hosting         a shift inside a flow run: reporting, stopping, its final state
host            `python -m flows.host`: starts flow runs as processes, drains them when it is stopped
draining        the process worker behind it
reconcile       Prefect's open runs against our own rows
automations     zombies become Crashed, missed slots become Skipped
vigil           a deployment without a shift at work is run at once
deploy          `python -m flows.deploy`: pool, deployments, automations
server          waiting for the Prefect server, and asking it
lifeline        a process that must not outlive its parent
"""
