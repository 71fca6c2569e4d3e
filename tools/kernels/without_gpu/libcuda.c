// A CUDA driver without a device: every launch succeeds and leaves the bytes of its parameters.
// Triton's own launchers and descriptors run against it, so that host code can be timed and the
// arguments that reach the driver compared.
#include <cuda.h>
#include <stdint.h>
#include <string.h>

#define ROOM 65536
static unsigned char bytes[ROOM];
static size_t used;
static int sizes[256], count;
static unsigned grid[8];
static long launches;

void stub_expect(int n, const int *given) {
  count = n;
  memcpy(sizes, given, n * sizeof(int));
}
void stub_clear(void) { used = 0; }
long stub_launches(void) { return launches; }
size_t stub_read(unsigned char *to) { memcpy(to, bytes, used); return used; }

static void keep(const void *from, size_t n) {
  if (used + n <= ROOM) { memcpy(bytes + used, from, n); used += n; }
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
  ++launches;
  if (count) {
    grid[0] = c->gridDimX, grid[1] = c->gridDimY, grid[2] = c->gridDimZ;
    grid[3] = c->blockDimX, grid[4] = c->sharedMemBytes, grid[5] = c->numAttrs;
    grid[6] = (unsigned)(uintptr_t)c->hStream, grid[7] = (unsigned)(uintptr_t)f;
    keep(grid, sizeof grid);
    for (int i = 0; i < count; ++i) keep(params[i], sizes[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank,
    void *address, const cuuint64_t *shape, const cuuint64_t *strides, const cuuint32_t *box,
    const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  uint64_t *to = (uint64_t *)map;
  memset(to, 0, 128);
  to[0] = (uint64_t)address, to[1] = type, to[2] = rank, to[3] = swizzle, to[4] = fill;
  for (cuuint32_t i = 0; i < rank; ++i) to[5 + i] = shape[i] ^ ((uint64_t)box[i] << 48);
  for (cuuint32_t i = 0; i + 1 < rank; ++i) to[10 + i] = strides[i];
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  switch (which) {
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 232448; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = 233472; break;
  case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: *value = 65536; break;
  default: *value = 1024;
  }
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction f) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr p) {
  *(CUdeviceptr *)data = p;
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *m, const void *image) { *m = (CUmodule)8; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) {
  *f = (CUfunction)16;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)8; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext c) { return CUDA_SUCCESS; }
CUresult cuCtxGetLimit(size_t *value, CUlimit which) { *value = 0; return CUDA_SUCCESS; }
CUresult cuCtxSetLimit(CUlimit which, size_t value) { return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = 0; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)8; return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = 12080; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return CUDA_SUCCESS; }
CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) { return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult r, const char **text) { *text = "no"; return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveClusters(int *n, CUfunction f, const CUlaunchConfig *c) {
  *n = 1;
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule m) { return CUDA_SUCCESS; }
