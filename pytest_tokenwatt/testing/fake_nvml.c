/* A stand-in for the NVIDIA driver's library: what it answers is read from a text file, again at every call.
 *
 * Compiled at test time with SONAME libnvidia-ml.so.1 and loaded by path, so that only this process ever meets it.
 * The file (see nvml.py beside this one, which writes it) holds lines of "key value"; keys of a GPU start with its
 * index. Instants are seconds of CLOCK_MONOTONIC. Power is a function of time alone, a list of square waves each from
 * some instant on, and the energy counter its exact integral.
 */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       LIBRARY_NOT_FOUND = 12, ARGUMENT_VERSION = 25 };
enum { MAX_GPUS = 16, MAX_WAVES = 64, MAX_RULES = 128, MAX_PIDS = 64, MAX_MIG = 8, TEXT = 96, SERIALS = 4096 };

typedef struct { double from_s, low_w, high_w, period_s, duty; } Wave;
typedef struct { int gpu, field, code; long after; double delay_s; int serial; char symbol[64]; } Rule;
typedef struct {
    char uuid[TEXT], name[TEXT], bus_id[32], mig[MAX_MIG][TEXT];
    int waves, pids, migs, mig_mode;
    Wave wave[MAX_WAVES];
    unsigned pid[MAX_PIDS];
    double boxcar_s, refresh_s, jitter_w;
    int stamped;
    char counter[16]; /* live, absent, zero, constant */
    double counter_j, counter_from_s, frozen_at_s;
    unsigned long long reasons, memory_total, memory_used;
    unsigned limit_mw, default_limit_mw, memory_clock_mhz, bus_width, architecture;
    double policy_ns[3], policy_share[3], policy_from_s; /* power cap, thermal, sync boost */
} Gpu;
typedef struct { char driver[TEXT]; int gpus, rules; Gpu gpu[MAX_GPUS]; Rule rule[MAX_RULES]; } State;
typedef struct { int gpu, slot; } Handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char path[4096];
static struct stat seen;
/* A call may still read the former state while another thread parses the next one. */
static State states[4];
static State *state = &states[0];
static long calls[SERIALS];
static int users;
static double wall_ahead_s; /* taken once, so that one refresh has one time stamp */
static Handle boards[MAX_GPUS], instances[MAX_GPUS][MAX_MIG];

static double now_s(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* ---- the state file ---- */

static void parse_gpu(Gpu *gpu, const char *key, const char *text) {
    if (!strcmp(key, "uuid")) snprintf(gpu->uuid, TEXT, "%s", text);
    else if (!strcmp(key, "name")) snprintf(gpu->name, TEXT, "%s", text);
    else if (!strcmp(key, "bus_id")) snprintf(gpu->bus_id, sizeof gpu->bus_id, "%s", text);
    else if (!strcmp(key, "wave") && gpu->waves < MAX_WAVES) {
        Wave *wave = &gpu->wave[gpu->waves++];
        sscanf(text, "%lf %lf %lf %lf %lf", &wave->from_s, &wave->low_w, &wave->high_w, &wave->period_s, &wave->duty);
    }
    else if (!strcmp(key, "sensor"))
        sscanf(text, "%lf %lf %lf %d", &gpu->boxcar_s, &gpu->refresh_s, &gpu->jitter_w, &gpu->stamped);
    else if (!strcmp(key, "counter"))
        sscanf(text, "%15s %lf %lf %lf", gpu->counter, &gpu->counter_j, &gpu->counter_from_s, &gpu->frozen_at_s);
    else if (!strcmp(key, "reasons")) gpu->reasons = strtoull(text, NULL, 0);
    else if (!strcmp(key, "limit")) sscanf(text, "%u %u", &gpu->limit_mw, &gpu->default_limit_mw);
    else if (!strcmp(key, "memory")) sscanf(text, "%llu %llu", &gpu->memory_total, &gpu->memory_used);
    else if (!strcmp(key, "architecture")) sscanf(text, "%u", &gpu->architecture);
    else if (!strcmp(key, "bus")) sscanf(text, "%u %u", &gpu->memory_clock_mhz, &gpu->bus_width);
    else if (!strcmp(key, "pid") && gpu->pids < MAX_PIDS) gpu->pid[gpu->pids++] = (unsigned)strtoul(text, NULL, 10);
    else if (!strcmp(key, "mig_mode")) gpu->mig_mode = atoi(text);
    else if (!strcmp(key, "mig") && gpu->migs < MAX_MIG) snprintf(gpu->mig[gpu->migs++], TEXT, "%s", text);
    else if (!strcmp(key, "throttle"))
        sscanf(text, "%lf %lf %lf %lf %lf %lf %lf", &gpu->policy_from_s, &gpu->policy_ns[0], &gpu->policy_ns[1],
               &gpu->policy_ns[2], &gpu->policy_share[0], &gpu->policy_share[1], &gpu->policy_share[2]);
}

static void parse_line(State *into, char *line) {
    char key[64];
    int used = 0, index = 0, skip = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (sscanf(line, "gpu.%d.%63s %n", &index, key, &used) == 2 && index >= 0 && index < MAX_GPUS) {
        if (index >= into->gpus) into->gpus = index + 1;
        parse_gpu(&into->gpu[index], key, line + used);
    } else if (sscanf(line, "driver %n", &skip) == 0 && skip) {
        snprintf(into->driver, TEXT, "%s", line + skip);
    } else if (!strncmp(line, "rule ", 5) && into->rules < MAX_RULES) {
        Rule *rule = &into->rule[into->rules++];
        sscanf(line, "rule %d %d %63s %d %ld %lf %d", &rule->serial, &rule->gpu, rule->symbol, &rule->code,
               &rule->after, &rule->delay_s, &rule->field);
    }
}

/* The writer renames a whole file into place, so another inode or time means another state. */
static void reload(void) {
    struct stat info;
    char line[512];
    if (stat(path, &info) != 0) return;
    if (info.st_ino == seen.st_ino && !memcmp(&info.st_mtim, &seen.st_mtim, sizeof info.st_mtim)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    State *fresh = &states[(state - states + 1) % 4];
    memset(fresh, 0, sizeof *fresh);
    while (fgets(line, sizeof line, file)) parse_line(fresh, line);
    fclose(file);
    state = fresh;
    seen = info;
}

void tokenwatt_fake_nvml(const char *state_file) {
    pthread_mutex_lock(&lock);
    snprintf(path, sizeof path, "%s", state_file);
    memset(&seen, 0, sizeof seen);
    memset(state, 0, sizeof *state);
    users = 0;
    wall_ahead_s = now_s(CLOCK_REALTIME) - now_s(CLOCK_MONOTONIC);
    pthread_mutex_unlock(&lock);
}

/* ---- every call starts here: the state anew, then what the rules say of this symbol ---- */

static int enter(const char *symbol, int gpu, int field) {
    double delay_s = 0;
    int code = OK;
    pthread_mutex_lock(&lock);
    reload();
    for (int k = 0; k < state->rules; k++) {
        const Rule *rule = &state->rule[k];
        if ((rule->gpu != -1 && rule->gpu != gpu) || rule->field != field || strcmp(rule->symbol, symbol)) continue;
        if (calls[rule->serial % SERIALS]++ < rule->after) continue;
        if (rule->delay_s > delay_s) delay_s = rule->delay_s;
        if (rule->code) code = rule->code;
    }
    pthread_mutex_unlock(&lock);
    if (delay_s > 0) {
        struct timespec rest = {(time_t)delay_s, (long)(1e9 * fmod(delay_s, 1.0))};
        nanosleep(&rest, NULL);
    }
    return code;
}

#define ENTER_SYSTEM() do { int code = enter(__func__, -1, 0); if (code) return code; } while (0)
#define ENTER(device) \
    const Handle *handle = (device); \
    if (!handle) return INVALID_ARGUMENT; \
    do { int code = enter(__func__, handle->gpu, 0); if (code) return code; } while (0); \
    Gpu *gpu = &state->gpu[handle->gpu]; \
    (void)gpu

/* ---- power and energy as functions of time ---- */

static double wave_j(const Wave *wave, double since_s) {
    double whole = floor(since_s / wave->period_s), rest = since_s - whole * wave->period_s;
    double high_s = whole * wave->period_s * wave->duty + fmin(rest, wave->period_s * wave->duty);
    return wave->low_w * since_s + (wave->high_w - wave->low_w) * high_s;
}

/* Joules since the first wave's beginning; the first one also reaches back before it. */
static double integral_j(const Gpu *gpu, double at_s) {
    double joules = 0;
    for (int k = 0; k < gpu->waves; k++) {
        const Wave *wave = &gpu->wave[k];
        double end_s = k + 1 < gpu->waves ? fmin(at_s, gpu->wave[k + 1].from_s) : at_s;
        if (k > 0 && end_s <= wave->from_s) break;
        joules += wave_j(wave, end_s - wave->from_s);
    }
    return joules;
}

static double jitter(double slot) {
    uint64_t mixed = (uint64_t)(int64_t)slot * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 29;
    mixed *= 0xBF58476D1CE4E5B9ull;
    return 2.0 * (double)(mixed >> 11) / 9007199254740992.0 - 1.0;
}

static double refreshed_s(const Gpu *gpu, double at_s) {
    return gpu->refresh_s > 0 ? floor(at_s / gpu->refresh_s) * gpu->refresh_s : at_s;
}

static double power_w(const Gpu *gpu) {
    double at_s = refreshed_s(gpu, now_s(CLOCK_MONOTONIC));
    double box_s = gpu->boxcar_s > 0 ? gpu->boxcar_s : 1e-6;
    double watts = (integral_j(gpu, at_s) - integral_j(gpu, at_s - box_s)) / box_s;
    return watts + gpu->jitter_w * jitter(floor(at_s / (gpu->refresh_s > 0 ? gpu->refresh_s : 1e-3)));
}

static int counter_mj(const Gpu *gpu, unsigned long long *millijoules) {
    double at_s = fmin(now_s(CLOCK_MONOTONIC), gpu->frozen_at_s);
    double live_j = gpu->counter_j + integral_j(gpu, at_s) - integral_j(gpu, gpu->counter_from_s);
    if (!strcmp(gpu->counter, "absent")) return NOT_SUPPORTED;
    *millijoules = (unsigned long long)llround(1000.0 * (strcmp(gpu->counter, "live") ? gpu->counter_j : live_j));
    return OK;
}

static unsigned long long policy_ns(const Gpu *gpu, int policy) {
    double since_s = now_s(CLOCK_MONOTONIC) - gpu->policy_from_s;
    return (unsigned long long)(gpu->policy_ns[policy] + 1e9 * since_s * gpu->policy_share[policy]);
}

/* ---- the library ---- */

/* Without a state there is no driver: whoever loads the library by name later finds none. */
int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ENTER_SYSTEM();
    if (!path[0]) return LIBRARY_NOT_FOUND;
    users++;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ENTER_SYSTEM(); if (users < 1) return UNINITIALIZED; users--; return OK; }
int tokenwatt_fake_nvml_users(void) { return users; }

const char *nvmlErrorString(int code) {
    static char text[48];
    snprintf(text, sizeof text, "error %d of the fake driver", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER_SYSTEM();
    snprintf(text, length, "%s", state->driver);
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER_SYSTEM();
    if (users < 1) return UNINITIALIZED;
    *count = (unsigned)state->gpus;
    return OK;
}

static int give(int index, void **device) {
    boards[index] = (Handle){index, -1};
    *device = &boards[index];
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    int code = enter(__func__, (int)index, 0);
    if (code) return code;
    return (int)index < state->gpus ? give((int)index, device) : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    ENTER_SYSTEM();
    for (int k = 0; k < state->gpus; k++)
        if (!strcmp(uuid, state->gpu[k].uuid)) return give(k, device);
    return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device) {
    ENTER_SYSTEM();
    for (int k = 0; k < state->gpus; k++)
        if (!strcmp(bus_id, state->gpu[k].bus_id)) return give(k, device);
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    ENTER(device);
    snprintf(text, length, "%s", gpu->name);
    return OK;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    ENTER(device);
    snprintf(text, length, "%s", handle->slot < 0 ? gpu->uuid : gpu->mig[handle->slot]);
    return OK;
}

int nvmlDeviceGetIndex(void *device, unsigned *index) {
    ENTER(device);
    *index = (unsigned)handle->gpu;
    return OK;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *info) {
    ENTER(device);
    memset(info, 0, 68);
    snprintf((char *)info + 36, 32, "%s", gpu->bus_id);
    return OK;
}

int nvmlDeviceGetArchitecture(void *device, unsigned *architecture) {
    ENTER(device);
    *architecture = gpu->architecture;
    return OK;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ENTER(device);
    *current = *pending = (unsigned)gpu->mig_mode;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    ENTER(device);
    *count = gpu->mig_mode ? MAX_MIG : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned slot, void **instance) {
    ENTER(device);
    if ((int)slot >= gpu->migs) return NOT_FOUND;
    instances[handle->gpu][slot] = (Handle){handle->gpu, (int)slot};
    *instance = &instances[handle->gpu][slot];
    return OK;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    ENTER(device);
    *milliwatts = (unsigned)llround(1000.0 * fmax(0.0, power_w(gpu)));
    return OK;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    ENTER(device);
    *milliwatts = gpu->limit_mw;
    return OK;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts) {
    ENTER(device);
    *milliwatts = gpu->limit_mw;
    return OK;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *milliwatts) {
    ENTER(device);
    *milliwatts = gpu->default_limit_mw;
    return OK;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    ENTER(device);
    return counter_mj(gpu, millijoules);
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *reasons) {
    ENTER(device);
    *reasons = gpu->reasons;
    return OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    ENTER(device);
    *reasons = gpu->reasons;
    return OK;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used) {
    ENTER(device);
    total_free_used[0] = gpu->memory_total;
    total_free_used[1] = gpu->memory_total - gpu->memory_used;
    total_free_used[2] = gpu->memory_used;
    return OK;
}

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *memory) {
    ENTER(device);
    if (memory->version != 0x02000028u) return ARGUMENT_VERSION;
    memory->total = gpu->memory_total;
    memory->reserved = 0;
    memory->used = gpu->memory_used;
    memory->free = gpu->memory_total - gpu->memory_used;
    return OK;
}

int nvmlDeviceGetMemoryBusWidth(void *device, unsigned *bits) {
    ENTER(device);
    *bits = gpu->bus_width;
    return OK;
}

int nvmlDeviceGetMaxClockInfo(void *device, int domain, unsigned *mhz) {
    ENTER(device);
    *mhz = domain == 2 ? gpu->memory_clock_mhz : 1980;
    return OK;
}

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    ENTER(device);
    *rates = (Utilization){gpu->pids ? 100 : 0, gpu->pids ? 50 : 0};
    return OK;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *processes) {
    ENTER(device);
    unsigned room = *count;
    *count = (unsigned)gpu->pids;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (int k = 0; k < gpu->pids; k++) processes[k] = (Process){gpu->pid[k], gpu->memory_used, ~0u, ~0u};
    return OK;
}

typedef struct { unsigned long long reference, violation; } Violation;

int nvmlDeviceGetViolationStatus(void *device, int policy, Violation *status) {
    ENTER(device);
    if (policy < 0 || policy > 2) return NOT_SUPPORTED;
    *status = (Violation){(unsigned long long)(1e6 * (wall_ahead_s + now_s(CLOCK_MONOTONIC))), policy_ns(gpu, policy)};
    return OK;
}

typedef struct {
    unsigned id, scope;
    long long stamp_us, latency_us;
    unsigned type;
    int code;
    union { double d; unsigned ui; unsigned long long ull; } value;
} Field;

enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

static void fill(const Gpu *gpu, Field *field) {
    int is_power = field->id == 185 || field->id == 186;
    double at_s = now_s(CLOCK_MONOTONIC);
    field->latency_us = 1;
    field->type = is_power ? UNSIGNED_INT : UNSIGNED_LONG_LONG;
    field->code = OK;
    field->stamp_us = llround(1e6 * (wall_ahead_s + (is_power ? refreshed_s(gpu, at_s) : at_s)));
    if (is_power && !gpu->stamped) field->stamp_us = 1;
    if (is_power) field->value.ui = (unsigned)llround(1000.0 * fmax(0.0, power_w(gpu)));
    else if (field->id == 74) field->value.ull = policy_ns(gpu, 0);
    else if (field->id == 76) field->value.ull = policy_ns(gpu, 2);
    else if (field->id == 83) field->code = counter_mj(gpu, &field->value.ull);
    else field->code = NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    ENTER(device);
    for (int k = 0; k < count; k++) {
        fill(gpu, &fields[k]);
        int code = enter("field", handle->gpu, (int)fields[k].id);
        if (code) fields[k].code = code;
    }
    return OK;
}
