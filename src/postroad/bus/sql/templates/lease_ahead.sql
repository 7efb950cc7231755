  perform mbus._refuse_cursor('{queue}', 'leases');
