# The app in a container: docker build -t rlhf-studio . && docker run -p 7860:7860 -v studio:/home/user/workspace rlhf-studio
FROM python:3.12-slim

RUN apt-get update && apt-get install -y --no-install-recommends tini && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 user
USER user
ENV HOME=/home/user \
    PATH=/home/user/.local/bin:$PATH \
    GRADIO_SERVER_NAME=0.0.0.0 \
    GRADIO_SERVER_PORT=7860 \
    GRADIO_ANALYTICS_ENABLED=False \
    HF_HOME=/home/user/.cache/huggingface \
    RLHF_STUDIO_WORKSPACE=/home/user/workspace \
    PYTHONUNBUFFERED=1
WORKDIR /home/user/app

COPY --chown=user requirements.txt ./
RUN pip install --no-cache-dir --user -r requirements.txt
COPY --chown=user . ./
RUN mkdir -p /home/user/workspace

EXPOSE 7860
# tini reaps the engine processes that outlive the app
ENTRYPOINT ["tini", "--"]
CMD ["python", "app.py"]
