"""The one door out: every byte that leaves for an endpoint or a mail relay goes through here.

addresses    which IP addresses may be reached, by a list of our own
deadline     one limit for a whole exchange
names        name to addresses, in a thread that can be left behind
wire         a connected socket under one deadline and a budget of bytes, with TLS on top
destination  the URL of an endpoint, checked once
http         one signed POST, and what its answer means
documents    one GET of a JSON document of the identity provider
signing      Standard Webhooks signatures and their secrets
secrets      secrets at rest
step_call    the body and headers of a step call (contract version 1)
notice       the words of a notice
message      a notice as a message to one person
smtp         messages to the relay
"""
