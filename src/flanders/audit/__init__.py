"""The audit trail: an append-only file of decisions in which each entry holds the hash of the one before.

`AuditTrail` writes it. `verify_trail` finds out whether anything in it was changed since.
"""

from flanders.audit.entries import Head
from flanders.audit.trail import AuditTrail
from flanders.audit.verification import Breach, TrailCheck, verify_trail

__all__ = ["AuditTrail", "Breach", "Head", "TrailCheck", "verify_trail"]
