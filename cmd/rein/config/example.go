package config

// Example is what "rein config init" writes. Every line in it is a comment or
// a default, so writing it changes nothing.
const Example = `# rein configuration
#
# rein config check   says what is wrong with this file, and where
# rein config show    prints what is in force and where it came from
# rein config schema  prints a JSON Schema for editors
#
# This file is read from $XDG_CONFIG_HOME/rein/config.yaml (or ~/.config), over
# /etc/rein/config.yaml, or from --config; never from a directory you work in.
# It holds no secret. Flags win over it.

# The target and the model used when --target and --model are not given.
target: default
# model: gpt

# Where runs execute. A model can at most pick a name; nothing it writes can
# change what a name means.
targets:
  default:
    provider: local
    runtime: gvisor       # or runc, crun, or the path of another OCI runtime
    image: host           # the host's /usr, read-only, and nothing else of it
    cwd: /workspace
    # resources:
    #   cpu: 2            # cores
    #   memory: 4GiB
    #   pids: 512
    #   disk: 2GiB
    # env:                # no secrets: commands can read these
    #   LANG: C.UTF-8
    # mounts:             # a live directory of the host; prefer --workspace
    #   - source: /srv/data
    #     target: /data
    #     writable: false
    # require: [separation, network_deny]   # refuse to run without; see rein probe
    # network:            # what may leave: docs/egress.md; without it, nothing
    #   default: deny     # or ask: a person is asked about what no rule speaks of
    #   bundles: [pypi]   # or npm, debian, go, crates, github-read, github:OWNER/REPO, huggingface
    #   rules:            # the strictest that speaks of a target counts
    #     - host: api.example.com        # tls on 443, http on 80
    #     - host: "*.example.org"        # every name beneath it
    #       ports: [443, 8443]
    #       proto: tls                   # or https, http, tcp
    #       action: ask                  # or allow, deny
    #     - cidr: 192.0.2.0/24
    #       ports: [22]
    #       proto: tcp
    #     - host: docs.example.com
    #       proto: https                 # TLS ends in the gateway, which sees requests
    #       methods: [GET]
    #       paths: [/public/*]
    #   # mode: strictest                # or ordered: the first that speaks counts
    #   # report_only: true              # what would be denied passes, and is recorded
    #   limits:
    #     connections: 64
    #     per_second: 20                 # new connections
    #     bytes: 1GiB                    # both ways
    #     max_upload_bytes: 10MiB
  # cluster:              # sandboxes of an OpenSandbox server: docs/opensandbox.md
  #   provider: opensandbox
  #   url: https://sandboxes.example.com
  #   key:
  #     env: OPENSANDBOX_KEY
  #   image: debian:12
  #   use_server_proxy: true   # where only the server can be reached
  #   # endpoint_scheme: https    # of the sandboxes' endpoints; that of url
  #   # entrypoint: [tail, -f, /dev/null]   # what the image starts
  #   # accept_weak_egress: true  # take a policy that stops names only
  #   # accept_weak_vault: true   # take secrets that its vault cannot keep to their hosts
  #   # server_execd_only: true   # put no execd of rein's into the sandboxes

# Credentials that requests of sandboxes are given, and sandboxes never hold:
# docs/vault.md. A target names those that are for it (secrets: [github]).
# secrets:
#   github:
#     env: GITHUB_TOKEN       # of this host; or file: or command:
#     variable: GITHUB_TOKEN  # inside, where it holds a placeholder
#     use:
#       - {host: api.github.com, as: bearer}
#       - {host: github.com, as: basic, user: x-access-token, paths: [/acme/*]}
#   storage:
#     file: /etc/rein/aws-secret
#     variable: AWS_SECRET_ACCESS_KEY
#     use:
#       - {host: s3.example.com, as: aws4, access_key: AKIDEXAMPLE}
#   bot:
#     command: [/usr/local/bin/bot-key]
#     revoke: [/usr/local/bin/bot-key, --revoke]   # reads the key from stdin, at the end
#     refresh: 45m                                 # how often a run has another made
#     variable: BOT_KEY
#     use:
#       - {host: bots.example.com, as: substitute, in: [path]}

# This host's way to the network, for sandboxes that may reach something.
# egress:
#   upstream_proxy:       # carries every connection out, by HTTP CONNECT
#     url: http://proxy.example.com:3128
#     user: rein
#     password:
#       env: PROXY_PASSWORD
#   upstream_ca: /etc/ssl/company.pem    # that sandboxes trust besides their own
#   resolvers: [192.0.2.53]              # instead of the host's
#   limits:               # of each sandbox, where its target sets no other
#     connections: 256
#     per_second: 50
#     bytes: 16GiB
#     max_upload_bytes: 1GiB
#     dials: 32           # connections of the host that are being made at once
#     questions: 3        # that wait for a person
#     names: 4096
#     names_per_minute: 60               # distinct ones beneath wildcards
#     idle_seconds: 3600                 # that a connection may carry nothing
#   host_limits:          # of all sandboxes together
#     connections: 1024
#     per_second: 200
#     bytes: 64GiB        # within a day
#     max_upload_bytes: 4GiB             # within a day

# OCI images that targets may name besides "host"; without this, none.
# images:
#   allow:                # exactly these; * is one part of a path, or all that follows
#     - debian:12
#     - ghcr.io/org/*
#     - sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
#   insecure: [registry.internal:5000]   # spoken to without TLS
#   dir: /var/cache/rein-images          # instead of ~/.cache/rein/images

# Command-line agents for rein wrap: docs/wrap.md.
# agents:
#   registry: https://npm.example.com/   # instead of npm's own
#   key: {env: NPM_TOKEN}                # that it wants; it stays on this host
#   user: ci                             # whose password key: is; without, it is a token
#   allow: ["192.0.2.0/24:443/tls"]      # what an installation may reach besides
#   dir: /var/cache/rein-agents          # instead of ~/.cache/rein/agents

# The brakes. Whatever stops a run names the flag that raises it.
limits:
  # preset: standard      # or quick, long; rein wrap starts from wrap
  # call_timeout: 60s     # of a command that asks for no timeout
  # max_call_timeout: 2m  # the most it may ask for
  # output_bytes: 16KiB
  # output_lines: 400
  # max_steps: 20
  # max_tool_calls: 20
  # max_wall_time: 15m
  # max_tokens: 1000000
  # max_cost: 5           # dollars; needs the model's price
  # ttl: 18m              # of the sandbox at birth; renewed on progress

# What of the conversation a model is sent: docs/context.md.
# context:
#   strategy: reference   # or summary, structured
#   high: 24KiB           # of whole results, above which the older ones are replaced
#   low: 8KiB             # of whole results that are left then
#   share: 20             # percent of a request that one result may hold

# Models by name, for --model NAME. A key stays on this host: exactly one of
# env, file and command says where it is found.
# models:
#   gpt:
#     vendor: openai      # or openai-responses, anthropic, gemini, script
#     model: gpt-5
#     base_url: https://api.openai.com/v1
#     # effort: medium    # how much to reason, in the vendor's words
#     # proxy: http://proxy.example:3128   # none is taken from the environment
#     # fallback: openai/gpt-5-mini   # asked when this one cannot be had
#     # context_window: 200000      # tokens it takes, its reply included
#     # legacy_max_tokens: true   # of openai: for servers that know max_tokens only
#     key:
#       env: OPENAI_API_KEY
#       # file: /run/keys/openai
#       # command: [/usr/bin/pass, show, openai]
#     price: 1.25,10      # dollars per million tokens: input,output[,cached[,cache write]]

# What models cost that are not under models:, or otherwise than published.
# prices:
#   openai/gpt-5: 1.25,10,0.125

# A tool for the model that finds the lines of one file that match, also in long
# output that was spilled.
# search: true

# Shell sessions for the model: commands that share a directory and exported
# variables. Without max it has none, and each command starts afresh.
# sessions:
#   max: 2                # open at once, at most 64
#   calls: 50             # commands in each
#   age: 30m              # at most 1h

# The collector of OpenTelemetry that is told of runs: docs/telemetry.md.
# telemetry:
#   endpoint: http://127.0.0.1:4318
#   headers:
#     authorization: {env: OTLP_AUTHORIZATION}
#   content: false        # true also sends what was said, masked

# What the agent may do without asking: docs/approval.md. Without rules it may run
# any command, inside its sandbox.
# approval:
#   default: allow        # of commands that no rule speaks of; or ask, deny
#   ask: [terminal, webhook]   # who is asked, all at once; or socket
#   timeout: 10m          # of an answer; none is no
#   grant: 1h             # how long an approval for the run holds
#   webhook:
#     url: https://approvals.example.com/rein
#     key:
#       env: REIN_APPROVAL_KEY
#   rules:                # the strictest counts, over all parts of a command line
#     - command: git push
#       action: ask
#       reason: it leaves the sandbox
#       examples:
#         match: [git -C sub push]
#         no_match: [git status]
#     - form: unresolved  # what is known only at execution
#       action: ask
#     - host: "*.example.com"   # answers what a target's network asks
#       action: allow

# Narrow tools, each one program without a shell, and whether there is a general
# shell beside them. rein config init --unattended writes an example.
# tools:
#   run_command: false
#   custom:
#     - name: run_tests
#       description: Run the tests of one package.
#       parameters:
#         - name: package
#           type: string
#           required: true
#           pattern: '[a-z/]+'
#       argv: [go, test, "./{{package}}"]

# Further values to mask in results, records and reports.
# redaction:
#   secrets:
#     - name: deploy-token
#       env: DEPLOY_TOKEN

# rein's own companions. Left out, they are looked for beside rein, then on PATH.
# programs:
#   execd: /opt/rein/rein-execd       # runs inside every sandbox
#   gvisor: /opt/rein/rein-runsc      # the runtime gvisor
`
