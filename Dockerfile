# RLHF Studio in a container. docs/deploy.md says how to run it, with a GPU, with a read-only root, and for a class.
#   docker build -t rlhf-studio .
#   docker run -p 7860:7860 -v studio:/home/user/workspace -v models:/home/user/.cache/huggingface rlhf-studio
FROM python:3.12-slim

# tini reaps the engine processes that outlive the app
RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 user

# Where PyTorch comes from: for the CPU unless told otherwise. With CUDA: --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /home/user/app
COPY requirements.txt ./
RUN pip install --no-cache-dir --index-url "${TORCH_INDEX}" "$(grep '^torch==' requirements.txt)"
RUN pip install --no-cache-dir -r requirements.txt

# Packages and source belong to root: what runs as the user cannot change them.
COPY . ./
RUN python -m compileall -q rlhf_studio app.py deploy

ENV HOME=/home/user \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False \
    HF_HOME=/home/user/.cache/huggingface \
    RLHF_STUDIO_WORKSPACE=/home/user/workspace \
    RLHF_STUDIO_STOP_RUNS=1 \
    PYTHONUNBUFFERED=1

# What is written lies here and in /tmp, and nowhere else.
RUN mkdir -p "${RLHF_STUDIO_WORKSPACE}" "${HF_HOME}" && chown -R user:user /home/user/workspace /home/user/.cache
VOLUME ["/home/user/workspace", "/home/user/.cache/huggingface"]

USER 1000
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["python", "deploy/health.py"]
ENTRYPOINT ["tini", "--"]
CMD ["python", "app.py"]
