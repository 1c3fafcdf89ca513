// A fake of NVRTC: g++ compiles the source with `emulator.h` into a library, whose path is the "cubin".
//
// OPFUSE_FAKE_FROM=a and OPFUSE_FAKE_TO=b replace `a` by `b` in every source that has it: a planted bug.
// OPFUSE_FAKE_SYNTAX=code is appended to every source.
// OPFUSE_CUDA_TEXTS=folder leaves every source there, for `scripts/nvrtc.py`.
//
// Libraries are kept beside this one, by source, so that a source is compiled once. EMULATOR is the folder of this
// library.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fstream>
#include <regex>
#include <sstream>
#include <string>

enum Result { SUCCESS = 0, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };
#define API extern "C" __attribute__((visibility("default"))) Result

struct Program {
    std::string text, log, library;
};

API nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, SUCCESS; }
extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(Result code) {
    switch (code) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR_INVALID_INPUT";
    }
}
API nvrtcCreateProgram(Program** program, const char* text, const char*, int n_headers, const char**, const char**) {
    if (!text || n_headers) return INVALID_INPUT;
    return *program = new Program{text, "", ""}, SUCCESS;
}
API nvrtcDestroyProgram(Program** program) {
    delete *program;
    return *program = 0, SUCCESS;
}

static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}
// How an entry is called, and the size of its argument buffer, which a real device knows by itself.
static std::string calls(const std::string& text) {
    static const std::regex entry("KERNEL\\([^)]*\\)\\s*(\\w+)\\((?:const |IN_PLACE Mapped)(Words<(\\d+)>) w\\)");
    std::string calls;
    for (std::sregex_iterator found(text.begin(), text.end(), entry), end; found != end; ++found) {
        const std::string name = (*found)[1], words = (*found)[2], n_words = (*found)[3];
        const bool is_mapped = found->str().find("Mapped") != std::string::npos;
        // Tensor maps are copied to aligned memory, because words of the host need not be aligned.
        const std::string call = is_mapped ? "Mapped" + words + " own; memcpy(&own, w, sizeof own); " + name + "(own);"
                                           : name + "(*(const " + words + "*)w);";
        calls += "extern \"C\" void call_" + name + "(const u64* w) { " + call + " }\n";
        calls += "extern \"C\" const size_t bytes_" + name + " = 8 * " + n_words + ";\n";
    }
    return calls;
}
static unsigned long long hash(const std::string& text) {
    unsigned long long hash = 0xcbf29ce484222325ull;
    for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3ull;
    return hash;
}

API nvrtcCompileProgram(Program* program, int n_options, const char* const* options) {
    static const char ARCHITECTURE[] = "--gpu-architecture=";
    std::string architecture;
    for (int at = 0; at < n_options; at++) {
        const std::string option = options[at];
        if (option.rfind(ARCHITECTURE, 0) == 0) architecture = option.substr(sizeof ARCHITECTURE - 1);
        else if (option != "--std=c++17" && option != "--ftz=false" && option != "--fmad=false" &&
                 option != "--diag-suppress=177" && option != "--minimal") {
            program->log = "nvrtc: error: invalid value for --gpu-architecture, or an unknown option: " + option;
            return INVALID_OPTION;
        }
    }
    if (architecture != "sm_80" && architecture != "sm_90" && architecture != "sm_90a") return INVALID_OPTION;
    if (program->text.find("wgmma.mma_async") != std::string::npos && architecture != "sm_90a") {
        program->log = "ptxas error: Instruction 'wgmma.mma_async' not supported on .target '" + architecture + "'";
        return COMPILATION;
    }
    // The prelude is compiled once for all sources.
    const std::string folder = EMULATOR, prelude = read(folder + "/prelude.cuh");
    const bool has_prelude = program->text.compare(0, prelude.size(), prelude) == 0;
    std::string rest = has_prelude ? program->text.substr(prelude.size()) : program->text;
    if (const char* const from = getenv("OPFUSE_FAKE_FROM")) {
        const size_t at = rest.find(from);
        if (at != std::string::npos) rest.replace(at, strlen(from), getenv("OPFUSE_FAKE_TO"));
    }
    if (getenv("OPFUSE_FAKE_SYNTAX")) rest += getenv("OPFUSE_FAKE_SYNTAX");
    const std::string text =
        std::string("#include \"") + (has_prelude ? "with_prelude.h" : "emulator.h") + "\"\n" + rest + "\n" + calls(rest);
    char name[32];
    snprintf(name, sizeof name, "/k%016llx", hash(text));
    if (const char* const texts = getenv("OPFUSE_CUDA_TEXTS")) std::ofstream(texts + std::string(name) + ".cu") << program->text;
    const std::string base = folder + name;
    program->library = base + ".so";
    if (access(program->library.c_str(), R_OK) == 0) return SUCCESS;
    const std::string own = base + "." + std::to_string(getpid()) + "." + std::to_string((size_t)program);
    std::ofstream(own + ".cpp") << text;
    const std::string command = "g++ " OPTIONS " -I '" + folder + "' -o '" + own + ".so' '" + own + ".cpp' -L '" + folder +
                                "' -l:libcuda.so.1 -lgcc -lm -lc 2> '" + own + ".log'";
    const int status = system(command.c_str());
    program->log = read(own + ".log");
    unlink((own + ".cpp").c_str());
    unlink((own + ".log").c_str());
    if (status != 0) return COMPILATION;
    rename((own + ".so").c_str(), program->library.c_str());
    return SUCCESS;
}
API nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, SUCCESS; }
API nvrtcGetProgramLog(Program* program, char* log) { return strcpy(log, program->log.c_str()), SUCCESS; }
static std::string cubin(Program* program) { return "fake:" + program->library; }
API nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = cubin(program).size() + 1, SUCCESS; }
API nvrtcGetCUBIN(Program* program, char* out) { return strcpy(out, cubin(program).c_str()), SUCCESS; }
