/* A program with a profiler of its own: it subscribes to CUPTI after CUDA has begun, and prints the code. */
#include <stdio.h>

#include "stand_in.h"

int cuptiSubscribe(void **subscription, void *function, void *user);

static void ignore(void *user, int domain, uint32_t number, const void *data)
{
    (void)user, (void)domain, (void)number, (void)data;
}

int main(void)
{
    void *subscription;
    void (*function)(void *, int, uint32_t, const void *) = ignore;
    void *address;
    cuInit(0);
    cuLaunchKernel("_Z5firstv", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    __builtin_memcpy(&address, &function, sizeof address);
    printf("%d\n", cuptiSubscribe(&subscription, address, NULL));
    cuLaunchKernel("_Z6secondv", 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return 0;
}
