# One image for every process of a deployment, and for one simulation in a container. Base: any Python 3.11 image.
FROM python:3.11-slim AS build
# The CPU build: nodes need no CUDA, which is gigabytes. Another build: --build-arg TORCH="torch torchvision".
ARG TORCH="torch torchvision --index-url https://download.pytorch.org/whl/cpu"
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/venv
WORKDIR /app
# Wheels to install from beside the index, if there are any (TORCH may name one: /wheels/...).
COPY README.md wheel[s] /wheels/
COPY pyproject.toml README.md LICENSE ./
# Dependencies first: they are rebuilt only when pyproject.toml changes. Until then
# packages are empty, but packages: without __init__.py they would be installed as namespaces, and theirs never run.
COPY deployment/constraints.py /tmp/
# Versions are bounded in pyproject.toml alone: PyTorch is installed within its bounds, and stays as it is afterwards.
# A registry behind a private certificate: docker build --secret id=ca,src=/path/to/ca-bundle.crt
RUN --mount=type=secret,id=ca \
    if [ -f /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python3 -c "import pathlib, tomllib; \
        names = tomllib.load(open('pyproject.toml', 'rb'))['tool']['setuptools']['packages']; \
        paths = [pathlib.Path(*name.split('.')) for name in names]; \
        [path.mkdir(parents=True, exist_ok=True) or (path / '__init__.py').touch() for path in paths]" && \
    python3 /tmp/constraints.py pyproject.toml > /tmp/constraints.txt && \
    /opt/venv/bin/pip install --constraint /tmp/constraints.txt ${TORCH} && \
    /opt/venv/bin/python -c "from importlib.metadata import distributions; [print(f'{d.name}=={d.version}') \
        for d in distributions() if d.name in ('torch', 'torchvision')]" > /tmp/torch.txt && \
    /opt/venv/bin/pip install --constraint /tmp/constraints.txt --constraint /tmp/torch.txt -e .

FROM python:3.11-slim
ENV PATH=/opt/venv/bin:$PATH \
    PAPFL_CACHE_DIR=/opt/papfl \
    HOME=/tmp FLWR_HOME=/tmp/flwr \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 \
    PYTHONUNBUFFERED=1
RUN groupadd --gid 10001 papfl && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home papfl && \
    mkdir -p /data /state /results /database /deploy && chown papfl:papfl /data /state /results /database /deploy
COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY client_app client_app
COPY server_app server_app
COPY simulations simulations
COPY deployment deployment
COPY papfl papfl
# Compiled once, here: a process per message must not compile. Bytecode too, since the code is read-only later.
RUN python -m client_app.warm_up && \
    python -m compileall -q /app && chmod -R a+rX /opt/papfl
USER papfl
ENTRYPOINT ["papfl"]
