"""Sessions in PostgreSQL: `postgresql://host/database/SESSION`. Only this package imports psycopg."""
