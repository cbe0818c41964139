# Loopwright from its wheel, with the C compiler that it calls:
#   docker build -t loopwright .
#   docker run --rm -v "$PWD:/work" loopwright tune "ij,jk->ik" i=64 j=64 k=64 --minutes 2 -o product.so
FROM python:3.13-slim AS build
WORKDIR /source
COPY . .
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /dist

FROM python:3.13-slim
RUN apt-get update \
  && apt-get install -y --no-install-recommends gcc libc6-dev \
  && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /constraints.txt
RUN --mount=type=bind,from=build,source=/dist,target=/dist \
  pip install --no-cache-dir -c /constraints.txt /dist/*.whl
WORKDIR /work
ENTRYPOINT ["loopwright"]
CMD ["--help"]
