"""The outbox: what happened, given to whoever waits for it.

dispatch        events to their consumer, in one transaction with the mark
redispatch      what was set aside, again
mail            queued notices over SMTP
subscriptions   where calls go: made, rotated, paused, resumed, disabled, deleted
"""
