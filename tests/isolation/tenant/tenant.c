/* A tenant: takes memory and GPU time in every way that the driver offers, as it is told on standard input, and answers
 * each line with one line. It finds the driver as any program does: by dlopen("libcuda.so.1"). */
#include "tenant.h"

#include <string.h>
#include <unistd.h>

/* Go on with another copy of the library, which is loaded beside the first one: what is held stays held. */
static void load_again(const char *path) {
    driver = dlopen(path, RTLD_NOW);
    printf("%d\n", driver ? 0 : 1);
}

/* The same in a namespace of the linker's own, where even the driver is another copy. */
static void load_apart(const char *path) {
    driver = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    printf("%d\n", driver ? 0 : 1);
}

static void info(void) {
    size_t left = 0, total = 0, device = 0;
    CUresult result = CU(cuMemGetInfo_v2)(&left, &total);
    CU(cuDeviceTotalMem_v2)(&device, 0);
    printf("%d %zu %zu %zu\n", result, left, total, device);
}

static void look_up(const char *name, int version, unsigned long long flags) {
    void *found = NULL;
    int status = -1;
    Dl_info where = {0};
    CUresult result = CU(cuGetProcAddress_v2)(name, &found, version, flags, &status);
    if (found) dladdr(found, &where);
    printf("%d %d %s %s\n", result, status, where.dli_sname ? where.dli_sname : "-", where.dli_fname ? where.dli_fname : "-");
}

/* Put aside or brought back, with one byte set of how that is to be done. */
static void checkpoint(bool restore, unsigned at) {
    union {
        char bytes[64];
        CUcheckpointCheckpointArgs aside;
        CUcheckpointRestoreArgs back;
    } how = {{0}};
    if (at < sizeof how.bytes) how.bytes[at] = 1;
    printf("%d\n", restore ? CU(cuCheckpointProcessRestore)(getpid(), &how.back)
                           : CU(cuCheckpointProcessCheckpoint)(getpid(), &how.aside));
}

static void call(const char *name) {
    typedef void *nothing;
    int (*called)(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing) = find(name);
    printf("%d\n", called(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

/* Before the driver was begun with. */
static void ask_too_early(void) {
    CUmemAllocationProp of_handle = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUmemPoolProps of_pool = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUcontext made;
    CUhandle handle;
    CUmemoryPool pool;
    printf("%d %d %d %d\n", CU(cuDevicePrimaryCtxRetain)(&made, 0), CU(cuCtxCreate_v2)(&made, 0, 0),
           CU(cuMemCreate)(&handle, 1 << 21, &of_handle, 0), CU(cuMemPoolCreate)(&pool, &of_pool));
}

/* How many words of that form follow this one: "take-x 5" is not "take -x 5". */
#define GIVEN(name, form, ...) (strcmp(word, name) == 0 ? sscanf(line + strlen(name), form, __VA_ARGS__) : 0)

static bool obey(const char *line) {
    char word[64], name[256];
    unsigned long long number = 0, other = 0, third = 0;
    double seconds;
    unsigned micros, idle = 0;
    int batch = 1;
    if (sscanf(line, "%63s", word) != 1) return true;
    if (strcmp(word, "start") == 0) printf("%d\n", start());
    else if (GIVEN("take", "%63s %llu", name, &number) == 2) printf("%d\n", take(way_of(name), number));
    else if (GIVEN("fill", "%63s %llu", name, &number) == 2) fill(name, number);
    else if (GIVEN("race", "%63s %llu", name, &number) == 2) race(name, number);
    else if (GIVEN("place", "%63s %llu %llu %llu %d", name, &number, &other, &third, &batch) == 5)
        place_block(name, number, other, third, batch);
    else if (GIVEN("work", "%u", &micros) == 1)
        printf("%d\n", CU(cuLaunchKernel)(NULL, micros, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    else if (GIVEN("streams-place", "%llu", &number) == 1) place_by_streams(number, false);
    else if (GIVEN("ended-place", "%llu", &number) == 1) place_by_streams(number, true);
    else if (GIVEN("stream-place", "%llu", &number) == 1) place_by_stream(number);
    else if (GIVEN("passing-place", "%llu", &number) == 1) place_in_passing(number);
    else if (GIVEN("place-beside", "%llu", &number) == 1) place_beside(number);
    else if (GIVEN("replace-while-placed", "%llu", &number) == 1) replace_while_placed(number);
    else if (GIVEN("end-while-placed", "%llu", &number) == 1) end_while_placed(number);
    else if (GIVEN("green-place", "%63s %llu", name, &number) == 2) place_by_green(name, number);
    else if (GIVEN("go-on-while-ending", "%63s %llu", name, &number) == 2) go_on_while_ending(name, number);
    else if (GIVEN("behind-placed", "%llu", &number) == 1) take_behind_placed(number);
    else if (GIVEN("wild", "%llu %llu %d", &number, &other, &batch) == 3) be_wild(number, other, batch);
    else if (strcmp(word, "end-default-stream") == 0) printf("%d\n", CU(cuStreamDestroy_v2)(NULL));
    else if (GIVEN("on", "%d", &batch) == 1) be_on(batch);
    else if (GIVEN("second-fill", "%llu", &number) == 1) fill_second(number);
    else if (GIVEN("give", "%llu", &number) == 1) printf("%d\n", give((int)number));
    else if (GIVEN("churn", "%llu %llu", &number, &other) == 2) churn(number, other);
    else if (strcmp(word, "empty") == 0) empty();
    else if (strcmp(word, "forget") == 0) printf("%d\n", held_count = 0);
    else if (strcmp(word, "info") == 0) info();
    else if (strcmp(word, "clock") == 0) tell_clock();
    else if (strcmp(word, "too-early") == 0) ask_too_early();
    else if (GIVEN("meet-in-granule", "%llu %llu", &number, &other) == 2) meet_in_granule(number, other);
    else if (GIVEN("meet-at-step", "%u %llu %llu %llu", &micros, &number, &other, &third) == 4)
        meet_at_step(micros, number, other, third);
    else if (GIVEN("freed-take", "%llu", &number) == 1) take_where_freed(number);
    else if (GIVEN("place-while-freed", "%llu", &number) == 1) place_while_freed(number);
    else if (GIVEN("release-while-mapped", "%llu", &number) == 1) release_while_mapped(number);
    else if (GIVEN("take-while-changed", "%63s %llu %llu", name, &number, &other) == 3)
        take_while_changed(name, number, other);
    else if (GIVEN("swap-while-mapped", "%63s %llu", name, &number) == 2)
        swap_while_mapped(strcmp(name, "sparse-thread") == 0, number);
    else if (GIVEN("take-with-answer-swapped", "%63s %llu %llu", name, &number, &other) == 3)
        take_with_answer_swapped(name, number, (int)other);
    else if (strcmp(word, "detach") == 0) printf("%d\n", CU(cuCtxDetach)((CUcontext)(uintptr_t)held[0].value));
    else if (strcmp(word, "tables") == 0) ask_for_tables();
    else if (GIVEN("mapping-waits", "%llu", &number) == 1)
        take_while_mapping_waits(number);
    else if (GIVEN("bind-while-replaced", "%63s %llu", name, &number) == 2)
        bind_while_replaced(name, number);
    else if (GIVEN("raise-while-lowered", "%llu", &number) == 1) raise_while_lowered(number);
    else if (GIVEN("replace-context", "%llu", &number) == 1) replace_context(number);
    else if (GIVEN("two-gpus", "%llu %llu", &number, &other) == 2) fill_two(number, other);
    else if (GIVEN("unbind-too-late", "%llu", &number) == 1) unbind_too_late(number);
    else if (strcmp(word, "send-descriptor") == 0) send_descriptor();
    else if (strcmp(word, "close-way") == 0) close_way();
    else if (strcmp(word, "export") == 0) export_first(false);
    else if (strcmp(word, "export-pool") == 0) export_first(true);
    else if (strcmp(word, "export-handle") == 0) export_handle();
    else if (GIVEN("import-handle", "%255s", name) == 1) import_handle(name);
    else if (GIVEN("import-pool", "%255s", name) == 1) import(name, true, false);
    else if (GIVEN("import-old", "%255s", name) == 1) import(name, false, true);
    else if (GIVEN("import", "%255s", name) == 1) import(name, false, false);
    else if (GIVEN("close", "%llu", &number) == 1) printf("%d\n", CU(cuIpcCloseMemHandle)(number));
    else if (GIVEN("free", "%llu", &number) == 1) printf("%d\n", CU(cuMemFreeAsync)(number, NULL));
    else if (strcmp(word, "primary") == 0) get_primary();
    else if (strcmp(word, "unread") == 0) load_unread();
    else if (strcmp(word, "green") == 0) make_green();
    else if (strcmp(word, "green-end") == 0) end_green();
    else if (GIVEN("elsewhere", "%llu", &number) == 1) fill_elsewhere(number);
    else if (GIVEN("fill-at", "%63s %d %u %llu", name, &batch, &micros, &number) == 4)
        fill_at(name, batch, (int)micros, number);
    else if (strcmp(word, "end-pool") == 0) end_pool();
    else if (GIVEN("fork", "%63s %llu", name, &number) == 2) do_fork(name, number);
    else if (GIVEN("use", "%lf %63s %u %d %u", &seconds, name, &micros, &batch, &idle) >= 3)
        use(seconds, name, micros, batch, idle);
    else if (GIVEN("whose", "%63s", name) == 1) tell_whose(name);
    else if (GIVEN("crowd", "%d %lf %u", &batch, &seconds, &micros) == 3) crowd(batch, seconds, micros);
    else if (GIVEN("sneak", "%63s %lf %u", name, &seconds, &micros) == 3) sneak(name, seconds, micros);
    else if (GIVEN("astray", "%63s %lf %u", name, &seconds, &micros) == 3) astray(name, seconds, micros);
    else if (GIVEN("capture", "%d", &batch) == 1) capture(batch);
    else if (GIVEN("serve", "%lf %u %d %u", &seconds, &micros, &batch, &idle) == 4)
        serve(seconds, micros, batch, idle);
    else if (GIVEN("lookup", "%255s %llu %llu", name, &number, &third) == 3) look_up(name, (int)number, third);
    else if (GIVEN("aside", "%llu", &number) == 1) checkpoint(false, (unsigned)number);
    else if (GIVEN("restore", "%llu", &number) == 1) checkpoint(true, (unsigned)number);
    else if (GIVEN("call", "%255s", name) == 1) call(name);
    else if (GIVEN("load-again", "%255s", name) == 1) load_again(name);
    else if (GIVEN("load-apart", "%255s", name) == 1) load_apart(name);
    else if (strcmp(word, "become") == 0) execl("/bin/cat", "cat", NULL);
    else if (strcmp(word, "renew") == 0) execl("/proc/self/exe", "tenant", NULL);
    else if (strcmp(word, "release") == 0) printf("%d\n", CU(cuDevicePrimaryCtxRelease_v2)(0));
    else if (strcmp(word, "quit") == 0) return false;
    else if (!obey_of_graphs(line)) printf("? %s\n", line);
    return true;
}

int main(void) {
    char line[512];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* a program that this becomes is to find the rest */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "tenant: %s\n", dlerror());
        return 2;
    }
    while (fgets(line, sizeof line, stdin) && obey(line)) {}
    return 0;
}
