"""The HTTP API: opens the transaction, calls one verb of the engine, shapes the answer.

app           the application: `uvicorn api.app:create_app --factory`
settings      what an operator may set
parts         what a request is served with: database, keys, verifier
edge          the outermost layer: request ids, the body limit, errors nobody expected
bodies        every JSON body is read here, strictly
problems      every answer that is not a success: RFC 9457 with stable codes
handlers      which problem answers which failure
tokens        the tokens that count, and the many that do not
issuer        the local issuer, for a machine on its own
auth          who calls, and the one permission a route declares
transaction   the transaction of a route
paging        pages behind an opaque cursor
shapes        the kinds of text, numbers and moments that come from outside
openapi       the document: FastAPI's, with every problem and permission
contract      `contracts/openapi.v1.json`, generated and checked
routes/       one resource a file
"""
