/* Encoding of blocks' payloads, byte by byte. The callers decide the contents. */
#include "rt.h"

#include <string.h>

void lw_put_bytes(struct lw_payload *p, const void *bytes, size_t length) {
    if (length > p->room - p->length) {
        p->overflow = true;
        return;
    }
    memcpy(p->bytes + p->length, bytes, length);
    p->length += (uint32_t)length;
}
void lw_put_u8(struct lw_payload *p, uint8_t value) { lw_put_bytes(p, &value, 1); }
void lw_put_u64(struct lw_payload *p, uint64_t value) { lw_put_bytes(p, &value, 8); }
void lw_put_u32(struct lw_payload *p, uint32_t value) { lw_put_bytes(p, &value, 4); }
void lw_put_varint(struct lw_payload *p, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        lw_put_u8(p, (uint8_t)(value | 0x80));
    lw_put_u8(p, (uint8_t)value);
}
void lw_put_text(struct lw_payload *p, const char *text) {
    size_t length = strlen(text);
    if (length > 4096)
        length = 4096;
    lw_put_varint(p, length);
    lw_put_bytes(p, text, length);
}
