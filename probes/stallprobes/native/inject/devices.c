/* The GPUs of the process: CUDA numbers those that it sees, from 0 in each process. The UUID says which one it is, and
 * attributes how many blocks of a kernel it runs at once. */
#include <dlfcn.h>
#include <string.h>

#include "devices.h"
#include "state.h"

typedef int (*count_function)(int *count);
typedef int (*uuid_function)(void *uuid, int device);
typedef int (*attribute_function)(int *value, int attribute, int device);

static void *function_of(void *library, const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

static void note_limits(attribute_function get_attribute, int device)
{
    /* CUdevice_attribute of the values of SS_DEVICE_LIMITS. */
    static const int attributes[SS_DEVICE_LIMITS] = {16, 39, 82, 81, 106, 111};
    for (int at = 0; at < SS_DEVICE_LIMITS; at++) {
        int value = 0;
        if (get_attribute(&value, attributes[at], device) || value < 0)
            value = 0;
        ss_header->limits[SS_DEVICE_LIMITS * device + at] = (uint32_t)value;
    }
}

/* Writes the UUIDs to the file, by one of the library's own threads: no call of the program waits for it. 0 until the driver
 * answers, as while it is being initialized. */
int ss_note_devices(void)
{
    if (ss_is_exiting())
        return 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *count_address = function_of(library, "cuDeviceGetCount");
    void *uuid_address = function_of(library, "cuDeviceGetUuid_v2");
    void *attribute_address = function_of(library, "cuDeviceGetAttribute");
    count_function count_devices;
    uuid_function get_uuid;
    attribute_function get_attribute;
    memcpy(&count_devices, &count_address, sizeof count_address);
    memcpy(&get_uuid, &uuid_address, sizeof uuid_address);
    memcpy(&get_attribute, &attribute_address, sizeof attribute_address);
    int count = 0, done = !count_address || !uuid_address;
    if (!done && !count_devices(&count)) {
        count = count < SS_DEVICES ? count : SS_DEVICES;
        int known = 0;
        /* The numbers of devices are their handles. */
        while (known < count && !get_uuid(ss_header->uuids + 16 * known, known))
            known++;
        for (int device = 0; device < known && attribute_address; device++)
            note_limits(get_attribute, device);
        ss_store_release(ss_header->devices, (uint32_t)known);
        done = 1;
    }
    if (library)
        dlclose(library);
    return done;
}
