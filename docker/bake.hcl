# docker buildx bake -f docker/bake.hcl            builds all three images
# docker buildx bake -f docker/bake.hcl cuda       one of them
# The defaults are those of versions.toml; tests/containers fails when one drifts.

variable "REVISION" {
  default = "unknown"
}

# The installed package: python -c "import warpwatch; print(*warpwatch.__path__)"
variable "HARNESS" {
  default = "warpwatch"
}

variable "PIP_CONFIG" {
  default = "/dev/null"
}

variable "CPU_BASE" {
  default = "python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254"
}

variable "CUDA_BASE" {
  default = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime@sha256:db80a41f8428644cebcb3d75b0b62df334ab6c0e75785951eb25f48bfbd42407"
}

variable "CUDA_COUNTERS" {
  default = "nvidia/cuda:13.0.2-base-ubuntu24.04@sha256:2ab6381d970b211fb93853796dc6707eb8a72575a375c422b17cf4d8b2641701"
}

variable "ROCM_BASE" {
  default = "rocm/pytorch:rocm10.0_ubuntu26.04_py3.14_pytorch_release_2.13.0@sha256:3174cb7061d94c427da96c0edef4adea28046fa3f3b2ff3948dc4e995665ff8c"
}

variable "TORCH" {
  default = "2.13.0"
}

variable "TRITON" {
  default = "3.7.1"
}

group "default" {
  targets = ["cpu", "cuda", "rocm"]
}

target "common" {
  context   = "."
  platforms = ["linux/amd64"]
  secret    = ["id=pip,src=${PIP_CONFIG}"]
  contexts = {
    harness = HARNESS
  }
  labels = {
    "org.opencontainers.image.revision" = REVISION
  }
}

target "cpu" {
  inherits   = ["common"]
  dockerfile = "docker/cpu.Dockerfile"
  tags       = ["localhost/warpwatch:cpu"]
  args = {
    BASE   = CPU_BASE
    PYTHON = "python3"
  }
}

target "cuda" {
  inherits   = ["common"]
  dockerfile = "docker/cuda.Dockerfile"
  tags       = ["localhost/warpwatch:cuda"]
  args = {
    BASE     = CUDA_BASE
    COUNTERS = CUDA_COUNTERS
    PYTHON   = "python3"
    TORCH    = TORCH
    TRITON   = TRITON
  }
}

target "rocm" {
  inherits   = ["common"]
  dockerfile = "docker/rocm.Dockerfile"
  tags       = ["localhost/warpwatch:rocm"]
  args = {
    BASE   = ROCM_BASE
    PYTHON = "python3"
    TORCH  = TORCH
  }
}
