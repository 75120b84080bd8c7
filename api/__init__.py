"""The HTTP API: opens the transaction, calls one verb of the engine, shapes the answer.

app           the application: its routes and layers
server        how it is served: `python -m api.server`
connections   a connection, and how long it may keep us waiting
settings      what an operator may set
parts         what a request is served with: database, keys, verifier
edge          the outermost layer: request ids, limits and deadline of a request, errors nobody expected
limits        how often a caller may fail
measured      a layer around all others that counts requests
metrics       what a process tells Prometheus
figures       what the database tells it
admission     the token, looked at before the body
bodies        every JSON body is read here, strictly
problems      every answer that is not a success: RFC 9457 with stable codes
handlers      which problem answers which failure
token_settings  the part of the settings that is about tokens
tokens        the tokens that count, and the many that do not
compact       how a token is written, read strictly
issuer        the local issuer, for a machine on its own
oidc          an identity provider of the operator's
rotation      its keys, which it replaces now and then
errand        a fetch of them, and who waits for it
jwks          which keys of a JWK set count
auth          who calls, and the one permission a route declares
transaction   the transaction of a route
paging        pages behind an opaque cursor
shapes        the kinds of text, numbers and moments that come from outside
openapi       the document: FastAPI's, with every problem and permission
contract      `contracts/openapi.v1.json`, generated and checked
document/     what the document says beyond the routes
routes/       one resource a file
"""
