/* The GPUs of the process: CUDA numbers those that it sees, from 0 in each process. The UUID says which one it is. */
#include <dlfcn.h>
#include <string.h>

#include "devices.h"
#include "state.h"

typedef int (*count_function)(int *count);
typedef int (*uuid_function)(void *uuid, int device);

static void *function_of(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

/* Writes the UUIDs to the file, by one of the library's own threads: no call of the program waits for it. 0 until the driver
 * answers, as while it is being initialized. */
int ss_note_devices(void)
{
    if (ss_is_exiting())
        return 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = function_of(library, "cuDeviceGetCount"), *asked = function_of(library, "cuDeviceGetUuid_v2");
    count_function count_devices;
    uuid_function get_uuid;
    memcpy(&count_devices, &found, sizeof found);
    memcpy(&get_uuid, &asked, sizeof asked);
    int count = 0, done = !found || !asked;
    if (!done && !count_devices(&count)) {
        count = count < SS_DEVICES ? count : SS_DEVICES;
        int known = 0;
        /* The numbers of devices are their handles. */
        while (known < count && !get_uuid(ss_header->uuids + 16 * known, known))
            known++;
        ss_store_release(ss_header->devices, (uint32_t)known);
        done = 1;
    }
    if (library)
        dlclose(library);
    return done;
}
