"""The audit trail: an append-only file of decisions. Each entry holds the hash of the entry before it.

`AuditTrail` writes a trail. `verify_trail` finds out whether anything in it was changed later.
"""

from flanders.audit.entries import Head
from flanders.audit.trail import AuditTrail
from flanders.audit.verification import Breach, TrailCheck, verify_trail

__all__ = ["AuditTrail", "Breach", "Head", "TrailCheck", "verify_trail"]
