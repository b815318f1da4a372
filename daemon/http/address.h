/* address.h - loopback addresses of TCP, as text and for the system. Pure, but
 * for what takes a descriptor. */
#pragma once

#include <sys/socket.h>

#include "base/err.h"
#include "proto/limits.h"

struct http_address {
    struct sockaddr_storage sa;
    bool optional; /* a system without it is fine: the ::1 of "localhost" */
};

struct http_addresses {
    size_t n;
    struct http_address v[HTTP_TCP_MAX];
};

/* Read "127.0.0.1:11435, [::1]:11435": addresses with commas or blanks between.
 * Port 0 is any free one. "localhost" is both 127.0.0.1 and ::1; no name is
 * ever looked up. "" gives none. Errors: CONFIG (no ADDRESS:PORT, an address
 * that is not loopback, one given twice, too many). */
CHECKED int address_read(const char *text, struct http_addresses *ret,
                         struct err *e);

/* 127.0.0.0/8 or ::1, nothing else: no ::ffff:127.0.0.1. */
bool address_is_loopback(const struct sockaddr_storage *sa);
unsigned address_port(const struct sockaddr_storage *sa);
bool address_same(const struct sockaddr_storage *a,
                  const struct sockaddr_storage *b);
/* The address alone as a Host header has it, "127.0.0.1" or "[::1]"; and with
 * the port. */
void address_host(const struct sockaddr_storage *sa,
                  char out[HTTP_ADDRESS_TEXT]);
void address_text(const struct sockaddr_storage *sa,
                  char out[HTTP_ADDRESS_TEXT]);
/* Whether fd is a socket of TCP; and whether the other end of a connected
 * one is loopback. */
bool address_is_tcp(int fd);
bool address_peer_is_loopback(int fd);
