#!/bin/sh
# Prolog or Epilog of Slurm: no job starts on a node that fails its check.
#
# 1. As root, once, on the node:   nodecheck accept --profile PROFILE
#    (the check is held against that; or add --baseline REPORT below)
# 2. Store this as /etc/slurm/nodecheck.sh, owned by root, mode 0755.
# 3. In slurm.conf:   Prolog=/etc/slurm/nodecheck.sh   (Epilog= looks after the job instead)
#
# A Prolog that does not end with 0 drains the node and requeues the job, so only a failed check (exit code 2) does;
# what could not be seen, and a check that is at work already, go to the system log.

export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

said=$(timeout --kill-after=5 30 @NODECHECK@ check --format nagios 2>&1)
code=$?
first=$(printf '%s\n' "$said" | head -n 1 | cut -d '|' -f 1)

case $code in
    0) exit 0 ;;
    2) logger -t nodecheck -p daemon.err -- "$first"
       printf 'print %s\n' "$first"
       exit 1 ;;
    *) logger -t nodecheck -p daemon.warning -- "exit code $code: $first"
       exit 0 ;;
esac
