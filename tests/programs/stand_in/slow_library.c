/* A library that takes its time inside dlopen: until the file that SLOW_LIBRARY_GO names is there. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int stallscope_attach_library(void)
{
    return 0;
}

__attribute__((constructor)) static void wait_for_file(void)
{
    const char *path = getenv("SLOW_LIBRARY_GO");
    struct timespec pause = {0, 1000000};
    while (path && access(path, F_OK))
        nanosleep(&pause, NULL);
}
