"""What server and client must agree on: settings, schedule, basis, model, context, privacy, channel, data.

Importing this package pins the numerics *before* torch or numpy are loaded (see `common.numerics`).
"""

from common.numerics import pin_environment

pin_environment()
