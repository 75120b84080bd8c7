"""The automations of the product, as code: created when absent, by name. One that an operator changed stays as it is.

A third, "Crashed -> run the deployment again", belongs to the deployments: see `triggers` in prefect.yaml.
"""

from __future__ import annotations

from datetime import timedelta

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import StateType
from prefect.events.actions import ChangeFlowRunState
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.events.schemas.events import ResourceSpecification

from flows.server import FLOWS

SILENT_FOR = timedelta(seconds=120)
"""Four heartbeats (PREFECT_FLOWS_HEARTBEAT_FREQUENCY is 30)."""

SHIFTS = [name for name in FLOWS if name != "clean-history"]
"""Flows whose missed slots are not caught up. A day's cleaning is."""

_RUNS = ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"})


def _of_flows(names: list[str]) -> ResourceSpecification:
    return ResourceSpecification({"prefect.resource.role": "flow", "prefect.resource.name": names})


ZOMBIES = AutomationCore(
    name="tenure: a silent run has crashed",
    description="A flow run without a heartbeat for 120 s is Crashed, so that it can be replaced.",
    trigger=EventTrigger(
        match=_RUNS,
        match_related=_of_flows(list(FLOWS)),
        after={"prefect.flow-run.heartbeat"},
        expect={
            "prefect.flow-run.heartbeat",
            "prefect.flow-run.Completed",
            "prefect.flow-run.Failed",
            "prefect.flow-run.Cancelled",
            "prefect.flow-run.Crashed",
        },
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=SILENT_FOR,
    ),
    actions=[ChangeFlowRunState(state=StateType.CRASHED, message="No heartbeat for 120 s.")],
)

SKIPPED = AutomationCore(
    name="tenure: a missed slot is skipped",
    description="A slot that was missed (everything was down) is not caught up: the next one is enough.",
    trigger=EventTrigger(
        match=_RUNS,
        match_related=_of_flows(SHIFTS),
        expect={"prefect.flow-run.Late"},
        for_each={"prefect.resource.id"},
        posture=Posture.Reactive,
        threshold=1,
        within=timedelta(0),
    ),
    actions=[
        ChangeFlowRunState(
            state=StateType.CANCELLED, name="Skipped", message="The slot was missed; the next one follows."
        )
    ],
)

AUTOMATIONS = [ZOMBIES, SKIPPED]


def create_absent(prefect: SyncPrefectClient) -> list[str]:
    """Create the automations that the server does not have. Returns their names."""
    absent = [automation for automation in AUTOMATIONS if not prefect.read_automations_by_name(automation.name)]
    for automation in absent:
        prefect.create_automation(automation)
    return [automation.name for automation in absent]
