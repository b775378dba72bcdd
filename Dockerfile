# papfl with everything it needs, for any machine with Docker. Base: any Python 3.11 image.
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY client_app client_app
COPY server_app server_app
COPY simulations simulations
# A registry behind a private certificate: docker build --secret id=ca,src=/path/to/ca-bundle.crt
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --no-cache-dir -e .
ENV PAPFL_CACHE_DIR=/data \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    FLWR_TELEMETRY_ENABLED=0 \
    FLWR_DISABLE_UPDATE_CHECK=1
VOLUME ["/data", "/runs"]
ENTRYPOINT ["papfl"]
