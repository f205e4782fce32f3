/* The stand-in for libcupti, which the model of a GPU beside it tells of work at its end.
 *
 * Whether work is recorded is decided when it is submitted, as CUPTI does: the record of a kernel that ends after its kind
 * was switched off still comes.
 */
#include "../programs/stand_in/libcupti.c"

static int is_recorded(uint32_t kind)
{
    pthread_mutex_lock(&lock);
    int recorded = buffer_requested && kinds[kind] && !lost;
    pthread_mutex_unlock(&lock);
    return recorded;
}

static void deliver(const struct stand_in_work *work)
{
    size_t most = 0, size = size_of(work->kind);
    pthread_mutex_lock(&lock);
    if (current && used + size > capacity)
        complete();
    if (!current)
        buffer_requested(&current, &capacity, &most);
    if (current) {
        memset(current + used, 0, size);
        fill(current + used, work);
        used += size;
    } else {
        dropped++;
    }
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void connect_model(void)
{
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*set)(int (*)(uint32_t), void (*)(const struct stand_in_work *));
    void *found = libcuda ? dlsym(libcuda, "model_set_recorder") : NULL;
    memcpy(&set, &found, sizeof found);
    if (set)
        set(is_recorded, deliver);
}
