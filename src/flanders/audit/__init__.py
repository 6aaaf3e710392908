"""The audit trail: an append-only file of what the server decided in each round.

Each entry holds the hash of the entry before it, so that later changes are noticed.

`AuditTrail` writes a trail. `verify_trail` finds the changes.
"""

from flanders.audit.entries import Head
from flanders.audit.trail import AuditTrail
from flanders.audit.verification import Breach, TrailCheck, verify_trail

__all__ = ["AuditTrail", "Breach", "Head", "TrailCheck", "verify_trail"]
