-- What must hold in every database that workers have worked on, however often they were killed. Each view forbids what its
-- comment says: it must have no rows. tests/crash/judge.py installs this file and reads the views.
--
-- Two things are watched as they happen, because the tables alone do not tell: every change of a run, with who wrote it (the
-- application name of a worker's connections is `worker <pid>`, and <pid> is part of the owner's name in its leases), and every
-- change of an attempt that had ended.

CREATE SCHEMA invariants;
GRANT USAGE ON SCHEMA invariants TO tenure_app;

CREATE TABLE invariants.legal_moves (source text, target text, PRIMARY KEY (source, target));

CREATE TABLE invariants.run_changes (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    realm_id text, run_id text,
    old_state text, state text, old_fence bigint, fence bigint, old_owner text, owner text,
    moved boolean, lease_was_over boolean, was_finished boolean,
    writer text, written_at timestamptz DEFAULT clock_timestamp()
);
CREATE TABLE invariants.reopened_attempts (realm_id text, run_id text, step_index int, attempt int, old_state text, state text);

CREATE FUNCTION invariants.watch_run() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO invariants.run_changes
        (realm_id, run_id, old_state, state, old_fence, fence, old_owner, owner, moved, lease_was_over, was_finished, writer)
    VALUES (
        OLD.realm_id, OLD.id, OLD.state, NEW.state, OLD.fence, NEW.fence, OLD.lease_owner, NEW.lease_owner,
        (OLD.state, OLD.step_index, OLD.context, OLD.error_category, OLD.finished_at, OLD.paused)
            IS DISTINCT FROM (NEW.state, NEW.step_index, NEW.context, NEW.error_category, NEW.finished_at, NEW.paused),
        OLD.lease_expires_at < clock_timestamp(), OLD.finished_at IS NOT NULL, current_setting('application_name')
    );
    RETURN NULL;
END $$;
CREATE TRIGGER watch_run AFTER UPDATE ON workflow_runs FOR EACH ROW EXECUTE FUNCTION invariants.watch_run();

CREATE FUNCTION invariants.watch_attempt() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO invariants.reopened_attempts VALUES
        (OLD.realm_id, OLD.run_id, OLD.step_index, OLD.attempt, OLD.state, NEW.state);
    RETURN NULL;
END $$;
CREATE TRIGGER watch_attempt AFTER UPDATE ON workflow_step_attempts FOR EACH ROW
    WHEN (OLD.state <> 'started' AND (OLD.state, OLD.finished_at) IS DISTINCT FROM (NEW.state, NEW.finished_at))
    EXECUTE FUNCTION invariants.watch_attempt();

-- Runs

CREATE VIEW invariants.lost_runs AS -- forbids: a run that has not ended, is never due and is not held back by a disabled workflow
SELECT realm_id, id, state FROM workflow_runs WHERE finished_at IS NULL AND due_at IS NULL AND NOT paused;

CREATE VIEW invariants.stuck_runs AS -- forbids: a run that has been due for a minute and nobody took it
SELECT realm_id, id, state, due_at FROM workflow_runs WHERE due_at < clock_timestamp() - interval '1 minute';

CREATE VIEW invariants.ended_runs_still_held AS -- forbids: a run that has ended and has a lease, or a moment at which it is due
SELECT realm_id, id, state FROM workflow_runs
WHERE finished_at IS NOT NULL AND (lease_owner IS NOT NULL OR lease_expires_at IS NOT NULL OR due_at IS NOT NULL);

CREATE VIEW invariants.ended_runs_with_open_parts AS -- forbids: an ended run with an attempt under way or an approval to be decided
SELECT r.realm_id, r.id, r.state FROM workflow_runs r
WHERE r.finished_at IS NOT NULL AND (
    EXISTS (SELECT FROM workflow_step_attempts a WHERE (a.realm_id, a.run_id) = (r.realm_id, r.id) AND a.state = 'started')
    OR EXISTS (SELECT FROM workflow_approvals p WHERE (p.realm_id, p.run_id) = (r.realm_id, r.id) AND p.state = 'pending'));

CREATE VIEW invariants.falling_fences AS -- forbids: a fence that falls
SELECT * FROM invariants.run_changes WHERE fence < old_fence;

CREATE VIEW invariants.claims_without_a_fence AS -- forbids: a new owner of a run under the fence of the one before
SELECT * FROM invariants.run_changes WHERE owner IS DISTINCT FROM old_owner AND owner IS NOT NULL AND fence <= old_fence;

CREATE VIEW invariants.moves_without_a_lease AS -- forbids: a worker that moves a run which it does not hold, or not any more
SELECT * FROM invariants.run_changes
WHERE moved AND writer LIKE 'worker %'
    AND (old_owner IS NULL OR old_owner NOT LIKE '%-' || substr(writer, 8) || '-%' OR lease_was_over);

CREATE VIEW invariants.leases_taken_from_others AS -- forbids: a worker that ends or renews the lease of another
SELECT * FROM invariants.run_changes
WHERE writer LIKE 'worker %' AND fence = old_fence AND old_owner NOT LIKE '%-' || substr(writer, 8) || '-%';

CREATE VIEW invariants.moves_off_the_table AS -- forbids: a change of state that the state table does not have
SELECT c.* FROM invariants.run_changes c
WHERE c.state <> c.old_state
    AND NOT EXISTS (SELECT FROM invariants.legal_moves m WHERE (m.source, m.target) = (c.old_state, c.state));

CREATE VIEW invariants.changes_after_the_end AS -- forbids: any change of a run that has ended
SELECT * FROM invariants.run_changes WHERE was_finished;

CREATE VIEW invariants.starts_without_their_audit AS -- forbids: a run whose start is not audited exactly once
SELECT r.realm_id, r.id, count(e.id) FROM workflow_runs r
LEFT JOIN audit_events e ON e.realm_id = r.realm_id AND e.correlation_id = r.id AND e.type = 'workflow.run.started'
GROUP BY r.realm_id, r.id HAVING count(e.id) <> 1;

CREATE VIEW invariants.ends_without_their_audit AS -- forbids: a run whose end is not audited exactly once, or otherwise than it is
SELECT r.realm_id, r.id, r.state, array_agg(e.type) FROM workflow_runs r
LEFT JOIN audit_events e ON e.realm_id = r.realm_id AND e.correlation_id = r.id
    AND e.type LIKE 'workflow.run.%' AND (e.type = 'workflow.run.succeeded' OR e.details ->> 'final' = 'true')
GROUP BY r.realm_id, r.id, r.state, r.finished_at
HAVING count(e.id) <> (r.finished_at IS NOT NULL)::int
    OR count(e.id) FILTER (WHERE e.type = 'workflow.run.' || r.state) <> (r.finished_at IS NOT NULL)::int;

-- Steps and their attempts

CREATE VIEW invariants.steps_done_twice AS -- forbids: a second success of one step
SELECT realm_id, run_id, step_index, count(*) FROM workflow_step_attempts
WHERE state = 'succeeded' GROUP BY realm_id, run_id, step_index HAVING count(*) > 1;

CREATE VIEW invariants.steps_left_out AS -- forbids: a run that went past a step which has not succeeded
SELECT r.realm_id, r.id, r.state, s.step_index FROM workflow_runs r
CROSS JOIN LATERAL generate_series(0, r.step_index - (r.state <> 'succeeded')::int) AS s (step_index)
WHERE NOT EXISTS (
    SELECT FROM workflow_step_attempts a
    WHERE (a.realm_id, a.run_id, a.step_index) = (r.realm_id, r.id, s.step_index) AND a.state = 'succeeded');

CREATE VIEW invariants.steps_ahead AS -- forbids: an attempt of a step that the run has not come to
SELECT a.realm_id, a.run_id, a.step_index FROM workflow_step_attempts a
JOIN workflow_runs r ON (r.realm_id, r.id) = (a.realm_id, a.run_id) WHERE a.step_index > r.step_index;

CREATE VIEW invariants.attempts_with_holes AS -- forbids: attempts of a step that are not numbered 1, 2, 3, ...
SELECT realm_id, run_id, step_index, array_agg(attempt ORDER BY attempt) FROM workflow_step_attempts
GROUP BY realm_id, run_id, step_index HAVING min(attempt) <> 1 OR max(attempt) <> count(*);

CREATE VIEW invariants.attempts_beyond_the_policy AS -- forbids: an attempt more than the policy in force allows
SELECT realm_id, run_id, step_index, attempt, max_attempts FROM workflow_step_attempts WHERE attempt > max_attempts;

CREATE VIEW invariants.attempts_after_the_last AS -- forbids: a new attempt of a step while one is under way or after one succeeded
SELECT a.realm_id, a.run_id, a.step_index, a.attempt, a.state FROM workflow_step_attempts a
WHERE a.state <> 'failed' AND EXISTS (
    SELECT FROM workflow_step_attempts b
    WHERE (b.realm_id, b.run_id, b.step_index) = (a.realm_id, a.run_id, a.step_index) AND b.attempt > a.attempt);

CREATE VIEW invariants.attempts_reopened AS -- forbids: any other end of an attempt that had ended
SELECT * FROM invariants.reopened_attempts;

CREATE VIEW invariants.keys_that_changed AS -- forbids: an attempt whose idempotency key is not that of its step
SELECT realm_id, run_id, step_id, attempt, idempotency_key FROM workflow_step_attempts
WHERE idempotency_key <> run_id || '.' || step_id;

CREATE VIEW invariants.steps_and_audit_differ AS -- forbids: an attempt without its one audit row, and an audit row without its attempt
WITH attempts AS (
    SELECT realm_id, run_id, step_id, 'workflow.step.' || state AS type, count(*) FROM workflow_step_attempts
    WHERE state IN ('succeeded', 'failed') GROUP BY 1, 2, 3, 4
), compensations AS (
    SELECT realm_id, run_id, step_id,
        CASE compensation_state WHEN 'done' THEN 'workflow.step.compensated' ELSE 'workflow.step.compensation_failed' END AS type,
        count(*)
    FROM workflow_step_attempts WHERE compensation_state IN ('done', 'failed') GROUP BY 1, 2, 3, 4
), audited AS (
    SELECT realm_id, correlation_id AS run_id, details ->> 'step_id' AS step_id, type, count(*) FROM audit_events
    WHERE type LIKE 'workflow.step.%' GROUP BY 1, 2, 3, 4
), recorded AS (SELECT * FROM attempts UNION ALL SELECT * FROM compensations)
SELECT realm_id, run_id, step_id, type, recorded.count AS recorded, audited.count AS audited
FROM recorded FULL JOIN audited USING (realm_id, run_id, step_id, type)
WHERE recorded.count IS DISTINCT FROM audited.count;

-- Effects

CREATE VIEW invariants.effects_and_steps_differ AS -- forbids: an effect that no step of its run owns, one done twice, and one missing
WITH succeeded AS (
    SELECT * FROM workflow_step_attempts WHERE state = 'succeeded' AND result ->> 'changed' = 'true'
), undone AS (
    SELECT * FROM workflow_step_attempts WHERE compensation_state = 'done' AND compensation_strategy = 'undo'
        AND compensation_result ->> 'already_gone' IS NULL
), owned AS (
    SELECT realm_id, run_id,
        CASE step_type
            WHEN 'assign_role' THEN 'role.assignment.granted'
            WHEN 'remove_role' THEN 'role.assignment.revoked'
            WHEN 'add_to_group' THEN 'group.membership.added'
            WHEN 'remove_from_group' THEN 'group.membership.removed'
            WHEN 'remove_membership' THEN 'organization.membership.removed'
            WHEN 'suspend_user' THEN 'user.suspended'
        END AS type
    FROM succeeded
    UNION ALL
    SELECT realm_id, run_id,
        CASE step_type WHEN 'assign_role' THEN 'role.assignment.revoked' WHEN 'add_to_group' THEN 'group.membership.removed' END
    FROM undone
), owned_counts AS (SELECT realm_id, run_id, type, count(*) FROM owned WHERE type IS NOT NULL GROUP BY 1, 2, 3
), done AS (
    SELECT realm_id, correlation_id AS run_id,
        CASE type WHEN 'role.assignment.expired' THEN 'role.assignment.revoked' ELSE type END AS type, count(*)
    FROM audit_events WHERE correlation_id LIKE 'wrn_%' AND type !~ '^workflow\.'
    GROUP BY 1, 2, 3
), compared AS (
    SELECT realm_id, run_id, type, owned_counts.count AS owned, done.count AS done
    FROM owned_counts FULL JOIN done USING (realm_id, run_id, type)
)
SELECT * FROM compared c
WHERE owned IS DISTINCT FROM done
    -- the end of a membership takes groups and roles with it, however many: invariants.taken_away_twice watches those
    AND NOT (type IN ('role.assignment.revoked', 'group.membership.removed') AND EXISTS (
        SELECT FROM succeeded s
        WHERE (s.realm_id, s.run_id) = (c.realm_id, c.run_id) AND s.step_type = 'remove_membership'));

CREATE VIEW invariants.effects_and_events_differ AS -- forbids: an effect of a run without its one outbox event, and such an event alone
WITH audited AS (
    SELECT realm_id, correlation_id AS run_id, type, count(*) FROM audit_events
    WHERE correlation_id LIKE 'wrn_%' AND type !~ '^workflow\.' GROUP BY 1, 2, 3
), told AS (
    SELECT realm_id, correlation_id AS run_id, type, count(*) FROM outbox_events WHERE correlation_id IS NOT NULL GROUP BY 1, 2, 3
)
SELECT realm_id, run_id, type, audited.count AS audited, told.count AS told
FROM audited FULL JOIN told USING (realm_id, run_id, type) WHERE audited.count IS DISTINCT FROM told.count;

CREATE VIEW invariants.given_twice AS -- forbids: a step that gave the same role or place in a group more than once
WITH given AS (
    SELECT realm_id, correlation_id AS run_id, coalesce(details ->> 'role_id', details ->> 'group_id') AS what, count(*)
    FROM audit_events WHERE correlation_id LIKE 'wrn_%' AND type IN ('role.assignment.granted', 'group.membership.added')
    GROUP BY 1, 2, 3
)
SELECT * FROM given g
WHERE g.count > (
    SELECT count(*) FROM workflow_step_attempts a
    WHERE (a.realm_id, a.run_id) = (g.realm_id, g.run_id) AND a.state = 'succeeded'
        AND g.what IN (a.input ->> 'role_id', a.input ->> 'group_id'));

CREATE VIEW invariants.taken_away_twice AS -- forbids: an assignment that was ended more than once
SELECT realm_id, details ->> 'assignment_id' AS assignment_id, count(*) FROM audit_events
WHERE type IN ('role.assignment.revoked', 'role.assignment.expired') GROUP BY 1, 2 HAVING count(*) > 1;

CREATE VIEW invariants.effects_without_a_step AS -- forbids: a grant, a place in a group or a message whose step has not succeeded
WITH keyed AS (
    SELECT realm_id, step_key, 'assignment ' || id AS effect FROM role_assignments WHERE step_key IS NOT NULL
    UNION ALL SELECT realm_id, step_key, 'place in ' || group_id FROM group_members WHERE step_key IS NOT NULL
    UNION ALL SELECT realm_id, step_key, 'message ' || id FROM messages
)
SELECT k.* FROM keyed k WHERE NOT EXISTS (
    SELECT FROM workflow_step_attempts a
    WHERE a.realm_id = k.realm_id AND a.idempotency_key = k.step_key AND a.state = 'succeeded'
        AND a.compensation_state <> 'done');

CREATE VIEW invariants.messages_and_steps_differ AS -- forbids: a notice that was queued twice for one recipient, or not at all
SELECT a.realm_id, a.run_id, a.step_id, a.result, count(m.id) FROM workflow_step_attempts a
LEFT JOIN messages m ON m.realm_id = a.realm_id AND m.step_key = a.idempotency_key
WHERE a.step_type = 'notify' AND a.state = 'succeeded'
GROUP BY a.realm_id, a.run_id, a.step_id, a.result HAVING count(m.id) <> coalesce(jsonb_array_length(a.result -> 'message_ids'), 0);

-- Compensation

CREATE VIEW invariants.compensated_out_of_order AS -- forbids: a compensation before that of a later step
WITH compensated AS (
    SELECT e.realm_id, e.correlation_id AS run_id, e.position, a.step_index,
        lag(a.step_index) OVER (PARTITION BY e.realm_id, e.correlation_id ORDER BY e.position) AS before
    FROM audit_events e
    JOIN workflow_step_attempts a ON a.realm_id = e.realm_id AND a.run_id = e.correlation_id
        AND a.step_id = e.details ->> 'step_id' AND a.state = 'succeeded'
    WHERE e.type IN ('workflow.step.compensated', 'workflow.step.compensation_failed')
)
SELECT * FROM compensated WHERE step_index >= before;

CREATE VIEW invariants.compensated_without_need AS -- forbids: a compensation of what needs none or can have none, or of a run that goes on
SELECT a.realm_id, a.run_id, a.step_id, a.compensation_strategy, a.compensation_state, r.state
FROM workflow_step_attempts a JOIN workflow_runs r ON (r.realm_id, r.id) = (a.realm_id, a.run_id)
WHERE (a.compensation_attempts > 0 OR a.compensation_state IN ('done', 'failed'))
    AND (a.state <> 'succeeded' OR a.compensation_strategy NOT IN ('undo', 'notify_endpoint')
        OR r.state NOT IN ('compensating', 'compensated', 'compensation_failed', 'cancelled'));

CREATE VIEW invariants.compensated_in_parallel AS -- forbids: more than one compensation of a run under way
SELECT realm_id, run_id, count(*) FROM workflow_step_attempts WHERE compensation_started_at IS NOT NULL
    AND compensation_state = 'pending' GROUP BY realm_id, run_id HAVING count(*) > 1;

CREATE VIEW invariants.wrong_ends AS -- forbids: an end that does not say what came of the compensations, or leaves one pending
SELECT r.realm_id, r.id, r.state, c.* FROM workflow_runs r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE compensation_state = 'pending') AS pending,
        count(*) FILTER (WHERE compensation_state = 'done') AS done,
        count(*) FILTER (WHERE compensation_state = 'failed') AS failed
    FROM workflow_step_attempts a WHERE (a.realm_id, a.run_id) = (r.realm_id, r.id) AND a.state = 'succeeded'
) AS c
WHERE CASE r.state
    WHEN 'succeeded' THEN c.done + c.failed > 0
    WHEN 'failed' THEN c.pending + c.done + c.failed > 0
    WHEN 'compensated' THEN c.pending + c.failed > 0 OR c.done = 0
    WHEN 'compensation_failed' THEN c.pending > 0 OR c.failed = 0
    WHEN 'cancelled' THEN c.pending + c.failed > 0
    ELSE false END;

-- Approvals, schedules, the outbox

CREATE VIEW invariants.approvals_and_audit_differ AS -- forbids: an approval asked for or decided twice, or otherwise than it is recorded
SELECT p.realm_id, p.id, p.state, array_agg(e.type ORDER BY e.position) FROM workflow_approvals p
LEFT JOIN audit_events e ON e.realm_id = p.realm_id AND e.target_id = p.id
GROUP BY p.realm_id, p.id, p.state
HAVING array_agg(e.type ORDER BY e.position) IS DISTINCT FROM CASE
    WHEN p.state IN ('approved', 'rejected', 'expired')
        THEN ARRAY['workflow.approval.requested', 'workflow.approval.' || p.state]
    ELSE ARRAY['workflow.approval.requested'] END;

CREATE VIEW invariants.slots_covered_twice AS -- forbids: a slot whose population was covered twice
SELECT realm_id, target_id, details ->> 'slot' AS slot, count(*) FROM audit_events
WHERE type = 'workflow.schedule.fired' AND details ->> 'complete' = 'true' GROUP BY 1, 2, 3 HAVING count(*) > 1;

CREATE VIEW invariants.events_left_behind AS -- forbids: an event that nobody dispatched for a minute
SELECT realm_id, id, type, due_at FROM outbox_events
WHERE dispatched_at IS NULL AND set_aside_at IS NULL AND due_at < clock_timestamp() - interval '1 minute';

CREATE VIEW invariants.events_without_their_run AS -- forbids: a dispatched event that a workflow listened to and that started no run
SELECT e.realm_id, e.id, t.workflow_id FROM outbox_events e
JOIN event_triggers t ON t.realm_id = e.realm_id AND t.event_type = e.type
    AND (t.organization_id IS NULL OR t.organization_id = e.organization_id)
JOIN workflows w ON (w.realm_id, w.id) = (t.realm_id, t.workflow_id) AND w.state = 'active' AND w.first_published_at < e.created_at
WHERE e.dispatched_at IS NOT NULL AND e.user_id IS NOT NULL AND e.caused_by_workflow IS DISTINCT FROM t.workflow_id AND e.depth < 3
    AND NOT EXISTS (
        SELECT FROM workflow_runs r
        WHERE r.realm_id = e.realm_id AND r.workflow_id = t.workflow_id AND r.trigger_key = 'event:' || e.id
            AND r.subject_id = e.user_id);

GRANT SELECT ON ALL TABLES IN SCHEMA invariants TO tenure_app;
