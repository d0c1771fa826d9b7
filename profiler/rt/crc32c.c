/* CRC-32C: by the CPU's instruction if it has one, otherwise by a table. */
#include "rt.h"

#include <string.h>

static uint32_t by_table(uint32_t crc, const uint8_t *bytes, size_t length) {
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++)
                value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
            table[i] = value;
        }
    for (size_t i = 0; i < length; i++)
        crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *bytes, size_t length) {
    uint64_t wide = crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; length > 0; bytes++, length--)
        crc = __builtin_ia32_crc32qi(crc, *bytes);
    return crc;
}
#endif

uint32_t lw_crc32c(uint32_t crc, const void *bytes, size_t length) {
    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~by_instruction(crc, bytes, length);
#endif
    return ~by_table(crc, bytes, length);
}
