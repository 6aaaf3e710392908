from __future__ import annotations

import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("nvflare", reason="NVFLARE is not installed")
    import nvflare.app_common.workflows.fedavg
    import nvflare.job_config.fed_job_config
    import nvflare.recipe  # noqa: F401
