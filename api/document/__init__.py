"""What the OpenAPI document says beyond what FastAPI reads off the routes. `api.openapi` puts it together.

words         the introduction, and what the tags mean
callers       who may call an operation
answers       the answers that are a success
meanings      what each member and parameter means
samples       an example of each
kinds         of which kind the ids in answers are
definition    the contract of definitions and of step calls, as components
problems      the answers that are no success, with an example of each code
examples      an example of anything, made of the examples of its members
polish        the document as a person would write it
"""
