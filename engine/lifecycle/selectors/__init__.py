"""Selectors: whom a schedule starts a run for. One a file; each reads its population in pages, behind the last subject.

registry       which selectors can be fired
role_holders   users who hold a role
"""
