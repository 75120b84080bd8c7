"""The demo: an onboarding played on the whole stack, twice, before the eyes of whoever runs it.

play        start the stack and the receivers, play both acts, judge, exit status
receivers   an SMTP server that keeps what it gets; an HTTP server that verifies signatures with the stock library
client      the API as the story uses it
story       the acts
verdict     what must be so afterwards, and the table of attempts, read from the database
"""
