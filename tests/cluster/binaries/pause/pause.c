/* The process that holds a pod's namespaces: it waits to be told to end, and reaps what is left to it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number) { _exit(signal_number == 0); }
static void reap(int signal_number) { while (waitpid(-1, NULL, WNOHANG) > 0 && signal_number != 0) { } }

int main(void) { signal(SIGTERM, end); signal(SIGINT, end); signal(SIGCHLD, reap); for (;;) pause(); }
