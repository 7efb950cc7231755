revoke execute on all functions in schema sample from public;
