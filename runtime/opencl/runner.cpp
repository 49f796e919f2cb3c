#include "runtime/opencl/runner.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <dlfcn.h>

#include <algorithm>

#include "codegen/llvm.h"
#include "core/error.h"

namespace lazuli {
namespace {

// The entry points used here, found in the loader by name.
struct Api {
  bool loaded = false;
#define LAZULI_CL_FUNCTIONS(F)                                                                     \
  F(clGetPlatformIDs) F(clGetDeviceIDs) F(clGetDeviceInfo) F(clCreateContext) F(clReleaseContext)   \
  F(clCreateCommandQueue) F(clReleaseCommandQueue) F(clCreateProgramWithSource) F(clBuildProgram)   \
  F(clGetProgramBuildInfo) F(clReleaseProgram) F(clCreateKernel) F(clReleaseKernel)                 \
  F(clSetKernelArg) F(clCreateBuffer) F(clReleaseMemObject) F(clEnqueueNDRangeKernel)               \
  F(clEnqueueReadBuffer) F(clFinish)
#define F(name) decltype(&::name) name = nullptr;
  LAZULI_CL_FUNCTIONS(F)
#undef F

  Api() {
    void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    loaded = true;
#define F(name)                                                           \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name));         \
  loaded = loaded && name != nullptr;
    LAZULI_CL_FUNCTIONS(F)
#undef F
  }
};

const Api& api() {
  static const Api instance;
  return instance;
}

struct Code {
  cl_int code;
  const char* name;
};
constexpr Code kCodes[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
};

void check(cl_int code, const char* call) {
  if (code == CL_SUCCESS) return;
  for (const Code& row : kCodes) {
    if (row.code == code) device_error("opencl: {} failed with {}", call, row.name);
  }
  device_error("opencl: {} failed with code {}", call, code);
}

// Owns one OpenCL object.
template <typename T>
class Handle {
 public:
  using Release = cl_int (*)(T);
  Handle(T object, Release release) : object_(object), release_(release) {}
  Handle(Handle&& o) noexcept : object_(std::exchange(o.object_, nullptr)), release_(o.release_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (object_) release_(object_);
  }
  T get() const { return object_; }

 private:
  T object_;
  Release release_;
};

cl_device_id find_device(std::string* why) {
  auto none = [&](const char* text) -> cl_device_id {
    if (why) *why = text;
    return nullptr;
  };
  if (!api().loaded) return none("the OpenCL loader libOpenCL.so.1 is not installed");
  cl_platform_id platforms[16];
  cl_uint count = 0;
  if (api().clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS || count == 0) {
    return none("no OpenCL driver is installed");
  }
  for (cl_uint p = 0; p < std::min<cl_uint>(count, 16); p++) {
    cl_device_id device = nullptr;
    if (api().clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 1, &device, nullptr) == CL_SUCCESS && device) return device;
  }
  return none("no OpenCL driver has a device");
}

class Session {
 public:
  explicit Session(cl_device_id device)
      : device_(device), context_(make_context(device), api().clReleaseContext), queue_(make_queue(), api().clReleaseCommandQueue) {}

  Handle<cl_program> build(const std::string& source) {
    cl_int code = 0;
    const char* text = source.c_str();
    const size_t size = source.size();
    Handle<cl_program> program(api().clCreateProgramWithSource(context_.get(), 1, &text, &size, &code),
                               api().clReleaseProgram);
    check(code, "clCreateProgramWithSource");
    code = api().clBuildProgram(program.get(), 1, &device_, "", nullptr, nullptr);
    if (code != CL_SUCCESS) {
      size_t n = 0;
      api().clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &n);
      std::string log(n, ' ');
      api().clGetProgramBuildInfo(program.get(), device_, CL_PROGRAM_BUILD_LOG, n, log.data(), nullptr);
      device_error("opencl: the kernel does not build: {}", log);
    }
    return program;
  }

  Handle<cl_mem> buffer(size_t bytes, void* host) {
    cl_int code = 0;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (host ? CL_MEM_COPY_HOST_PTR : 0);
    Handle<cl_mem> b(api().clCreateBuffer(context_.get(), flags, std::max<size_t>(bytes, 1), host, &code),
                     api().clReleaseMemObject);
    check(code, "clCreateBuffer");
    return b;
  }

  void launch(cl_program program, const std::string& name, const std::vector<cl_mem>& memory, const std::vector<size_t>& groups,
              const std::vector<size_t>& items) {
    cl_int code = 0;
    Handle<cl_kernel> kernel(api().clCreateKernel(program, name.c_str(), &code), api().clReleaseKernel);
    check(code, "clCreateKernel");
    for (cl_uint i = 0; i < memory.size(); i++) {
      check(api().clSetKernelArg(kernel.get(), i, sizeof(cl_mem), &memory[i]), "clSetKernelArg");
    }
    std::vector<size_t> global = groups, local = items;
    global.resize(3, 1);
    local.resize(3, 1);
    for (size_t d = 0; d < 3; d++) global[d] *= local[d];
    check(api().clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 3, nullptr, global.data(), local.data(), 0, nullptr, nullptr),
          "clEnqueueNDRangeKernel");
    check(api().clFinish(queue_.get()), "clFinish");
  }

  void read(cl_mem memory, void* host, size_t bytes) {
    check(api().clEnqueueReadBuffer(queue_.get(), memory, CL_TRUE, 0, bytes, host, 0, nullptr, nullptr), "clEnqueueReadBuffer");
  }

 private:
  static cl_context make_context(cl_device_id device) {
    cl_int code = 0;
    cl_context c = api().clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
    check(code, "clCreateContext");
    return c;
  }
  cl_command_queue make_queue() {
    cl_int code = 0;
    cl_command_queue q = api().clCreateCommandQueue(context_.get(), device_, 0, &code);
    check(code, "clCreateCommandQueue");
    return q;
  }

  cl_device_id device_;
  Handle<cl_context> context_;
  Handle<cl_command_queue> queue_;
};

std::vector<size_t> sizes(const std::vector<int64_t>& v) { return {v.begin(), v.end()}; }

}  // namespace

std::string first_opencl_device(std::string* why) {
  cl_device_id device = find_device(why);
  if (!device) return "";
  char text[256] = {};
  api().clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof text - 1, text, nullptr);
  return text;
}

void run_opencl(const Program& program, const std::string& source, const std::string& name,
                const std::vector<void*>& arguments) {
  std::string why;
  cl_device_id device = find_device(&why);
  if (!device) device_error("opencl: {}", why);
  Session session(device);
  const Handle<cl_program> built = session.build(source);
  int64_t most_groups = 1;
  for (const Phase& p : program.phases) most_groups = std::max(most_groups, p.count);
  std::vector<Handle<cl_mem>> owned;
  for (size_t i = 0; i < arguments.size(); i++) {
    const MemoryArgument& a = program.arguments[i];
    owned.push_back(session.buffer(static_cast<size_t>(a.size * size_of(a.dtype)), arguments[i]));
  }
  owned.push_back(session.buffer(static_cast<size_t>(program.scratch_bytes * most_groups), nullptr));
  owned.push_back(session.buffer(static_cast<size_t>(program.shared_bytes), nullptr));
  std::vector<cl_mem> memory;
  for (const auto& h : owned) memory.push_back(h.get());
  for (size_t i = 0; i < program.phases.size(); i++) {
    const Phase& p = program.phases[i];
    const std::vector<size_t> groups = p.groups.empty() ? std::vector<size_t>{static_cast<size_t>(p.count)} : sizes(p.groups);
    if (p.count > 0) session.launch(built.get(), phase_function(name, i, false), memory, groups, sizes(p.items));
    if (p.has_tail) session.launch(built.get(), phase_function(name, i, true), memory, {1}, sizes(p.items));
  }
  for (size_t i = 0; i < arguments.size(); i++) {
    const MemoryArgument& a = program.arguments[i];
    if (a.output) session.read(memory[i], arguments[i], static_cast<size_t>(a.size * size_of(a.dtype)));
  }
}

}  // namespace lazuli
