# A worker: Python, torch and SAR, from a wheel of `make wheels`. docs/running.md says how to start it.
# The digest is that of all its platforms; docs/releasing.md says how a newer one is found.
ARG BASE=python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
FROM ${BASE}

# Extras of the package, such as dgl,metrics, and where pip finds torch: for CPUs, which is all that SAR uses.
ARG EXTRAS=metrics
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# torch and DGL need OpenMP's library.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*

# The wheel of this processor; pip leaves the others alone.
COPY dist/release/ /tmp/wheels/
RUN pip install --no-cache-dir --extra-index-url "${TORCH_INDEX}" --find-links /tmp/wheels "sar-gnn[${EXTRAS}]" \
    && rm -rf /tmp/wheels

# The user's secret would lie in the home (docs/security.md); give a job its token in SAR_JOB_TOKEN.
RUN useradd --create-home worker
USER worker
WORKDIR /work
CMD ["sar", "doctor"]
