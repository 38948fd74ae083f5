/* Graphs that allocate. What their memory takes, the driver tells for each device as a whole; a launch is let through
 * when what it may take beyond that fits (graphs_core.h). */
#include <pthread.h>

#include "clock.h"
#include "graph_nodes.h"
#include "graph_shares.h"
#include "holdings.h"
#include "pace.h"
#include "tails.h"

#define NAP MS
#define LONGEST_WAIT (60000 * MS) /* a stream may wait for the very thread that launches: it has an answer after a minute */

/* Around what the driver does with a graph's memory and what is noted of it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_memory memory[MOST_GPUS];
/* Graphs that are being instantiated: of each the handle may be in use before it is noted, by whoever guesses it. */
static int under_way;
static pthread_cond_t one_is_noted = PTHREAD_COND_INITIALIZER;

/* The slice's GPUs; none where its limits could not be read, and then no driver is there to answer either. */
static int gpus_here(void) {
    return limits ? (int)limits->gpus : 0;
}

static void begin_one(void) {
    pthread_mutex_lock(&lock);
    under_way++;
    pthread_mutex_unlock(&lock);
}

static bool note(CUgraphExec exec, const struct graph_asked *asked) {
    if (asked && graph_note(exec, asked)) return true;
    graph_forget(exec);
    REAL(cuGraphExecDestroy)(exec);
    return false;
}

static CUresult remember(CUresult result, const CUgraphExec *exec, CUgraph graph) {
    struct graph_asked asked;
    bool made = result == CUDA_SUCCESS, told = made && graph_asks(graph, &asked);
    pthread_mutex_lock(&lock);
    if (made && !note(*exec, told ? &asked : NULL)) result = CUDA_ERROR_OUT_OF_MEMORY;
    under_way--;
    pthread_cond_broadcast(&one_is_noted);
    pthread_mutex_unlock(&lock);
    return result;
}

#define REMEMBERED(exec, graph, call)      \
    ({                                     \
        begin_one();                       \
        remember((call), (exec), (graph)); \
    })

EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, REMEMBERED(&made, graph, REAL(cuGraphInstantiate)(&made, graph, failed, log, size)));
}

EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, REMEMBERED(&made, graph, REAL(cuGraphInstantiate_v2)(&made, graph, failed, log, size)));
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made, REMEMBERED(&made, graph, REAL(cuGraphInstantiateWithFlags)(&made, graph, flags)));
}

/* What the driver has reserved for graphs; what is charged, where it does not say. */
static uint64_t reserved_now(int gpu, uint64_t charged) {
    for (CUdevice device = 0; device < MOST_GPUS; device++) {
        uint64_t bytes = 0;
        if (gpu_of_device(device) != gpu) continue;
        bool told = REAL(cuDeviceGetGraphMemAttribute)(device, ATTRIBUTE_GRAPH_RESERVED_NOW, &bytes) == CUDA_SUCCESS;
        return told ? bytes : charged;
    }
    return charged;
}

/* Bring the charge to what is reserved. */
static uint64_t settle(int gpu, uint64_t claimed) {
    uint64_t before = memory[gpu].reserved + claimed, now = reserved_now(gpu, before);
    if (now > before)
        account_charge_anyway(gpu, now - before);
    else
        account_release(gpu, before - now);
    return now;
}

static void refresh(int gpu) {
    graph_told(&memory[gpu], settle(gpu, 0));
}

static void let_go(struct asking *asking) {
    for (int gpu = 0; gpu < gpus_here(); gpu++) account_release(gpu, asking->claimed[gpu]);
}

/* A graph that has all it asks for takes nothing, and then there is nothing to note of its launch either: the driver need
 * not be asked, as it is before and after one that takes something, or of which nobody knows what it asks for. */
static bool claim(struct asking *asking) {
    for (int gpu = 0; gpu < gpus_here(); gpu++) asking->claimed[gpu] = 0;
    for (int gpu = 0; gpu < gpus_here(); gpu++) {
        if (!asking->has_bodies && !graph_claim(&memory[gpu], &asking->share[gpu])) continue;
        refresh(gpu);
        uint64_t bytes = graph_claim(&memory[gpu], &asking->share[gpu]);
        if (bytes && !account_charge(gpu, bytes)) {
            let_go(asking);
            return false;
        }
        asking->claimed[gpu] = bytes;
    }
    return true;
}

static void enter(struct asking *asking, bool done) {
    for (int gpu = 0; gpu < gpus_here(); gpu++) {
        if (!asking->has_bodies && !asking->claimed[gpu]) continue;
        uint64_t now = settle(gpu, asking->claimed[gpu]);
        if (!done) {
            graph_refused(&memory[gpu], now);
            continue;
        }
        graph_launched(&memory[gpu], &asking->share[gpu], now);
        graph_keep(asking, gpu);
    }
}

/* What it is now. One that is not known may be about to be; whoever waits for that can't be ended there. */
static void ask_anew(struct asking *asking) {
    int could_end;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &could_end);
    graph_ask_anew(asking);
    while (!asking->known && under_way) {
        pthread_cond_wait(&one_is_noted, &lock);
        graph_ask_anew(asking);
    }
    pthread_setcancelstate(could_end, NULL);
}

static CUresult call_once(int index, CUgraphExec exec, CUstream stream, struct asking *asking) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    ask_anew(asking);
    if (claim(asking)) {
        result = REAL_AS(index, cuGraphLaunch)(exec, stream);
        enter(asking, result == CUDA_SUCCESS);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static void make_room(const struct asking *asking) {
    for (int gpu = 0; gpu < gpus_here(); gpu++)
        if (asking->share[gpu].asks) give_back_unused(gpu);
}

/* Whether the stream comes to the end of what it was given. */
static bool ends(CUstream stream, bool per_thread) {
    struct tails tails = {0};
    struct tail *tail = &tails.of[0];
    if (stream_is_captured(stream, per_thread) || !tails_add(&tails, stream, per_thread)) return false;
    enum tail_state state = tail_ask(tail);
    for (uint64_t end = now_ns() + LONGEST_WAIT; state == TAIL_WORKING && now_ns() < end;) {
        nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
        state = tail_ask(tail);
    }
    if (tail->event) REAL(cuEventDestroy_v2)(tail->event);
    return state == TAIL_DONE;
}

/* Without the lock, for it allocates nothing. Between our look and the driver's another thread may have ended it and put one
 * that does into its place: what that has taken is charged at least afterwards. */
static CUresult call_plain(int index, CUgraphExec exec, CUstream stream, struct asking *asking) {
    CUresult result = REAL_AS(index, cuGraphLaunch)(exec, stream);
    if (graph_is_as_asked(asking)) return result;
    pthread_mutex_lock(&lock);
    ask_anew(asking);
    for (int gpu = 0; (asking->allocates || !asking->known) && gpu < gpus_here(); gpu++) refresh(gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

/* A graph that runs keeps its memory. The driver would give it to the next one in its stream; so where no room is left,
 * that one waits until the stream's are done, and what they had is given back. */
static CUresult call(int index, CUgraphExec exec, CUstream stream) {
    struct asking *asking = graph_asking(exec);
    if (asking->known && !asking->allocates) return call_plain(index, exec, stream, asking);
    CUresult result = call_once(index, exec, stream, asking);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
    make_room(asking);
    result = call_once(index, exec, stream, asking);
    bool per_thread = index == F_cuGraphLaunch_ptsz || index == F_cuGraphUpload_ptsz;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || !ends(stream, per_thread)) return result;
    make_room(asking);
    return call_once(index, exec, stream, asking);
}

/* An upload takes the memory that the nodes ask for, as a launch does: it is made by itself, when that is known. */
static CUresult instantiate(int index, int upload, CUgraphExec *exec, CUgraph graph,
                            CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    if (!parameters) return REAL_AS(index, cuGraphInstantiateWithParams)(exec, graph, parameters);
    CUDA_GRAPH_INSTANTIATE_PARAMS plain = *parameters; /* as in cuMemCreate */
    bool uploads = plain.flags & INSTANTIATE_UPLOAD;
    plain.flags &= ~(unsigned long long)INSTANTIATE_UPLOAD;
    CUresult result = REMEMBERED(exec, graph, REAL_AS(index, cuGraphInstantiateWithParams)(exec, graph, &plain));
    parameters->failed_node = plain.failed_node;
    parameters->result = plain.result;
    if (result != CUDA_SUCCESS || !uploads) return result;
    result = call(upload, *exec, plain.upload);
    if (result != CUDA_SUCCESS) cuGraphExecDestroy(*exec);
    return result;
}

EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made,
                    instantiate(F_cuGraphInstantiateWithParams, F_cuGraphUpload, &made, graph, parameters));
}

EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters) {
    CUgraphExec made = NULL;
    return ANSWERED(exec, made,
                    instantiate(F_cuGraphInstantiateWithParams_ptsz, F_cuGraphUpload_ptsz, &made, graph, parameters));
}

EXPORT CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload, exec, stream);
}

EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream) {
    return call(F_cuGraphUpload_ptsz, exec, stream);
}

EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    int gpu = pace_before(stream, false);
    CUresult result = call(F_cuGraphLaunch, exec, stream);
    pace_after(gpu, stream, false);
    return result;
}

EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
    int gpu = pace_before(stream, true);
    CUresult result = call(F_cuGraphLaunch_ptsz, exec, stream);
    pace_after(gpu, stream, true);
    return result;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
    /* One step, or what was noted of another thread's new graph in the same place would be forgotten. */
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuGraphExecDestroy)(exec);
    if (result == CUDA_SUCCESS) graph_forget(exec);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
    int gpu = gpu_of_device(device);
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuDeviceGraphMemTrim)(device);
    if (gpu >= 0) refresh(gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

void graphs_trim(int gpu) {
    if (!memory[gpu].reserved) return;
    for (CUdevice device = 0; device < MOST_GPUS; device++)
        if (gpu_of_device(device) == gpu) cuDeviceGraphMemTrim(device);
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&one_is_noted, NULL);
    under_way = 0;
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) memory[gpu] = (struct graph_memory){0};
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
