# CPU. For CUDA, build with: --build-arg TORCH_INDEX=https://pypi.org/simple
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

RUN useradd --create-home --uid 1000 lab
WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir "torch>=2.13,<2.14" --index-url "$TORCH_INDEX" \
    && pip install --no-cache-dir -r requirements.txt
COPY . .

# What people keep: mount a volume here.
ENV DFLASH_LAB_DATA=/data/lab DFLASH_LAB_CACHE=/data/cache HF_HOME=/data/huggingface
RUN mkdir /data && chown lab /data
VOLUME /data
USER lab

EXPOSE 8501
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=5)"]
# Every interface of the container; publish it on the host's loopback: docker run -p 127.0.0.1:8501:8501
ENTRYPOINT ["python", "-m", "streamlit", "run", "serve.py", "--server.address", "0.0.0.0", "--server.port", "8501", "--server.headless", "true"]
